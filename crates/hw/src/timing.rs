//! What of a plan decides how long packets take: no values, only places and times.

/// How a map is kept consistent while several packets are under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Packets only read it.
    None,
    /// It is read, changed and written in one stage, inside of the table.
    Atomic,
    /// A packet waits in a queue while another with the same key is between its read and its write.
    Schedule,
    /// Packets that read too early start again.
    Flush,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Scheme; 4] = [Scheme::None, Scheme::Atomic, Scheme::Schedule, Scheme::Flush];

    /// Its name, as users type it.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::None => "none",
            Scheme::Atomic => "atomic",
            Scheme::Schedule => "schedule",
            Scheme::Flush => "flush",
        }
    }
}

/// When packets touch a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapTiming {
    /// Its name.
    pub name: String,
    /// How it is kept consistent.
    pub scheme: Scheme,
    /// The first stage that reads it, from 0.
    pub read_stage: u32,
    /// The stage whose end its writes are done at, from 0; the last stage of its hazard region.
    pub write_stage: u32,
    /// For how many cycles a packet keeps others with the same key out: from the cycle in which it enters `read_stage` until
    /// what it writes can be read. 1 where it is atomic, so that the next cycle's packet may have the same key.
    pub hold_cycles: u32,
    /// With [`Scheme::Schedule`]: how many queues there are in front of `read_stage`, each for the keys that lead to it.
    pub queues: u32,
    /// How many packets each queue holds.
    pub queue_depth: u32,
    /// With [`Scheme::Flush`]: the stage from which packets start again, where the elastic buffer stands.
    pub restart_stage: u32,
}

/// When packets are where.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// The clock.
    pub clock_mhz: f64,
    /// How many stages the program has.
    pub stages: u32,
    /// Cycles from the first word of a packet until its first word leaves, where nothing is in its way: `stages`, framing,
    /// queues that it goes through, realignment.
    pub latency_cycles: u32,
    /// Its maps, those that packets change, in the order of their first reads.
    pub maps: Vec<MapTiming>,
}
