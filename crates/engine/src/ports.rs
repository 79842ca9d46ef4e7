// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ports of a run.

use crate::Port;

/// Ports have numbers below this.
pub const PORT_COUNT: u32 = 256;

/// The ports that are bound to an interface or an output: packets through others are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports {
    /// The bound ports.
    bound: PortSet,
    /// The ports that a flood reaches.
    flooded: PortSet,
}

const WORDS: usize = (PORT_COUNT / u64::BITS) as usize;

/// Ports below [`PORT_COUNT`]: a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct PortSet([u64; WORDS]);

impl PortSet {
    const ALL: PortSet = PortSet([u64::MAX; WORDS]);

    fn of(ports: impl IntoIterator<Item = Port>) -> PortSet {
        let mut set = PortSet::default();
        for Port(number) in ports.into_iter().filter(|port| port.0 < PORT_COUNT) {
            set.0[(number / u64::BITS) as usize] |= 1 << (number % u64::BITS);
        }
        set
    }

    #[inline]
    fn has(&self, Port(number): Port) -> bool {
        let word = self.0.get((number / u64::BITS) as usize);
        word.is_some_and(|word| word >> (number % u64::BITS) & 1 == 1)
    }
}

impl Ports {
    /// The offline default: every port is bound, since no interface can be missing, and a flood reaches the ports of
    /// `inputs` inputs, but at least 1 and 2.
    pub fn offline(inputs: u32) -> Ports {
        Ports { bound: PortSet::ALL, flooded: PortSet::of((1..=inputs.clamp(2, PORT_COUNT - 1)).map(Port)) }
    }

    /// Exactly these ports.
    pub fn bound(ports: impl IntoIterator<Item = Port>) -> Ports {
        let bound = PortSet::of(ports);
        Ports { bound, flooded: bound }
    }

    /// True if `port` is bound.
    #[inline]
    pub fn is_bound(&self, port: Port) -> bool {
        self.bound.has(port)
    }

    /// The ports that a flood of a packet from port `from` reaches, ascending.
    pub fn flooded(&self, from: Port) -> Vec<Port> {
        self.broadcast(Some(from))
    }

    /// The ports that a broadcast reaches, ascending, except `but`.
    pub fn broadcast(&self, but: Option<Port>) -> Vec<Port> {
        (0..PORT_COUNT).map(Port).filter(|port| self.flooded.has(*port) && Some(*port) != but).collect()
    }
}

impl Default for Ports {
    /// As [`Ports::offline`] with one input.
    fn default() -> Ports {
        Ports::offline(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_excludes_the_ingress_port() {
        assert_eq!(Ports::offline(3).flooded(Port(2)), [Port(1), Port(3)]);
        assert_eq!(Ports::default().flooded(Port(7)).len(), 2);
        assert_eq!(Ports::offline(2).broadcast(None).len(), 2);
        let bound = Ports::bound([Port(4), Port(9), Port(PORT_COUNT)]);
        assert_eq!(bound.flooded(Port(1)), [Port(4), Port(9)]);
    }

    #[test]
    fn only_given_ports_are_bound() {
        assert!(Ports::default().is_bound(Port(0)) && Ports::default().is_bound(Port(PORT_COUNT - 1)));
        assert!(!Ports::default().is_bound(Port(PORT_COUNT)));
        let bound = Ports::bound([Port(4)]);
        assert!(bound.is_bound(Port(4)) && !bound.is_bound(Port(1)));
    }
}
