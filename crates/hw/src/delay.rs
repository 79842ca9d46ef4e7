//! What the hardware's parts take: one table that schedulers, headers and co-simulation share.

/// How many stages what a program calls takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// A lookup: from the stage that has the key until the next one has the value's address.
    pub lookup_stages: u32,
    /// An update or a deletion: until a lookup finds it done.
    pub update_stages: u32,
    /// A redirection, which looks the port up.
    pub redirect_stages: u32,
}

impl Default for Delays {
    fn default() -> Delays {
        Delays { lookup_stages: 4, update_stages: 2, redirect_stages: 2 }
    }
}
