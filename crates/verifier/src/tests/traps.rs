// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two paths that join and differ in one value, and a use that is safe on one of them: a verifier that confuses the two
//! accepts an unsafe program.
//!
//! ```text
//!   if … goto other         r8 is a copy of r9              what is shown of r9 is shown of r8
//!   r8 = r9
//!   goto join
//!   other: r8 = r3          r8 is some number
//!   join: …                 noise; r8 and r9 go through the stack, a function, arithmetic
//!   if r9 > 7 goto out
//!   r6 += r8                safe on the first path
//! ```
//!
//! In half of the programs both paths are safe.

use super::generator::{Generator, Kind, line};

/// The value that differs between the paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trap {
    /// r8 is small, and is used as an offset.
    Offset,
    /// r8 is zero, and null is what a lookup in r9 is compared with.
    Zero,
    /// r8 is r9 and a constant, and bounded by it.
    Linked,
    /// r8 is what r9 is, out of one lookup.
    Lookup,
    /// r8 is where r9 is in the packet.
    Place,
    /// r8 is how much of the packet lies behind r9.
    Room,
    /// r8 is a length.
    Length,
    /// The value in r9 is locked, and r8 is it.
    Lock,
    /// r8 is what was stored below the spilled values: out of one lookup, a number, or a place in the packet.
    StoredLookup,
    StoredNumber,
    StoredPlace,
}

const TRAPS: [Trap; 15] = [
    Trap::Offset,
    Trap::Offset,
    Trap::Zero,
    Trap::Linked,
    Trap::Linked,
    Trap::Lookup,
    Trap::Place,
    Trap::Place,
    Trap::Room,
    Trap::Room,
    Trap::Length,
    Trap::Lock,
    Trap::StoredLookup,
    Trap::StoredNumber,
    Trap::StoredPlace,
];

const LOOK_UP: &str = "r2 = r10\nr2 += -52\nr1 = map[table] ll\ncall map_lookup_elem\n";
const LOCKED: &str = "r2 = r10\nr2 += -52\nr1 = map[locked] ll\ncall map_lookup_elem\nif r0 == 0 goto out\n";

impl Generator<'_> {
    /// One trap, with noise around.
    pub(super) fn trap(&mut self) {
        let trap = *self.rng.pick(&TRAPS);
        self.line("*(u32 *)(r10 - 52) = 1");
        let before = match trap {
            Trap::Linked => "call get_prandom_u32\nr9 = r0".to_owned(),
            Trap::Lookup | Trap::Zero => format!("{LOOK_UP}r9 = r0"),
            Trap::Lock => format!("{LOCKED}r9 = r0"),
            Trap::Place | Trap::Room => self.place(),
            Trap::Offset | Trap::Length => "r9 = 7".to_owned(),
            Trap::StoredLookup => format!("{LOOK_UP}*(u64 *)(r10 - 80) = r0\nr8 = r0\nr9 = 7"),
            Trap::StoredNumber => "call get_prandom_u32\nr8 = r0\n*(u64 *)(r10 - 80) = r8\nr9 = 7".to_owned(),
            Trap::StoredPlace => self.place() + "\nr8 = r9\n*(u64 *)(r10 - 80) = r8\nr9 = 7",
        };
        self.line(&before);
        self.spoil();
        let (bad, join) = (self.label(), self.label());
        let [first, second] = match self.rng.below(4) {
            0 => [self.good(trap), self.bad(trap)],
            1 => [self.bad(trap), self.good(trap)],
            _ => [self.good(trap), self.good(trap)],
        };
        let question = self.question();
        line!(self, "{question}{bad}\n{first}\ngoto {join}\n{bad}: r4 = 1\n{second}\n{join}: r4 = 1");
        self.spoil();
        // Nothing else uses the two until they are used.
        (self.known.registers[8], self.known.registers[9]) = (Kind::Nothing, Kind::Nothing);
        self.known.slots[..2].fill(Kind::Nothing);
        self.is_guarded = true;
        for _ in 0..self.rng.below(4) {
            match self.rng.chance(1, 2) {
                true => self.transport(trap),
                false => self.statement(0),
            }
        }
        self.is_guarded = false;
        self.used(trap);
        self.spoil();
        (self.known.registers[8], self.known.registers[9]) = (Kind::Nothing, Kind::Nothing);
        self.line("r8 = 3\nr9 = 4");
        (self.known.registers[8], self.known.registers[9]) = (Kind::Small, Kind::Small);
    }

    fn spoil(&mut self) {
        self.known.registers[..6].fill(Kind::Nothing);
    }

    /// A branch that takes both edges and decides nothing else.
    fn question(&mut self) -> String {
        match self.rng.below(3) {
            0 => "call get_prandom_u32\nif r0 > 0x7fffffff goto ".to_owned(),
            1 => format!("r1 = *(u64 *)(r10 - 8)\nr2 = *(u32 *)(r1 + 12)\nif r2 > {} goto ", self.rng.below(6)),
            _ => format!("r1 = *(u64 *)(r10 - 8)\nr2 = *(u32 *)(r1 + 12)\nif w2 & {} goto ", 1 << self.rng.below(3)),
        }
    }

    /// An address in the packet of which nothing is known.
    fn place(&mut self) -> String {
        let data = "r1 = *(u64 *)(r10 - 8)\nr9 = *(u32 *)(r1 + 0)\nr7 = *(u32 *)(r1 + 4)";
        match self.rng.below(4) {
            0 => data.to_owned(),
            1 => format!("{data}\nr9 += {}", self.rng.below(20)),
            _ => format!(
                "{data}\nr2 = r9\nr2 += 8\nif r2 > r7 goto out\nr3 = *(u8 *)(r9 + {})\nr3 &= {}\nr9 += r3",
                self.rng.below(8),
                self.rng.pick(&[7, 15, 60, 255])
            ),
        }
    }

    fn good(&mut self, trap: Trap) -> String {
        let pick = self.rng.below(4);
        let choices = match trap {
            Trap::Offset => ["r8 = 0", "r8 = 0", "r8 = 5", "call get_prandom_u32\nr8 = r0\nr8 &= 7"],
            Trap::Length => ["r8 = 1", "r8 = 8", "r8 = 6", "call get_prandom_u32\nr8 = r0\nr8 &= 7\nr8 += 1"],
            Trap::Zero => ["r8 = 0", "w8 = 0", "r8 = 7\nr8 &= 0", "r8 = 0"],
            Trap::Linked => {
                ["r8 = r9", "r8 = r9\nr8 += 1", "w8 = w9", "*(u64 *)(r10 - 16) = r9\nr8 = *(u64 *)(r10 - 16)"]
            }
            Trap::Lookup | Trap::Lock => ["r8 = r9"; 4],
            Trap::StoredLookup | Trap::StoredNumber | Trap::StoredPlace => ["r5 = 2"; 4],
            Trap::Place => ["r8 = r9", "r8 = r9", "r8 = r9\nr8 += 1", "r8 = r9\nr8 += -1\nr8 += 1"],
            Trap::Room => [
                "r8 = r7\nr8 -= r9",
                "r8 = r7\nr8 -= r9",
                "r8 = r7\nr8 -= r9\nr8 += 2",
                "r3 = r9\nr3 += 1\nr8 = r7\nr8 -= r3",
            ],
        };
        choices[pick].to_owned()
    }

    /// A value for which the use is unsafe.
    fn bad(&mut self, trap: Trap) -> String {
        let pick = self.rng.below(4);
        let random = "call get_prandom_u32\nr8 = r0";
        let choices = match trap {
            Trap::Offset => ["r8 = 1000", random, "r8 = -1", "r8 = *(u64 *)(r10 - 40)"],
            Trap::Length => ["r8 = 1000", random, "r8 = 0", "r8 = 9"],
            Trap::Zero => ["r8 = 1", random, "r8 = -1", "w8 = -1"],
            Trap::Linked => {
                [random, "r8 = r9\nr8 += 20", "r8 = r9\nr8 += -1", "call get_prandom_u32\nr8 = r0\nr3 = r0"]
            }
            Trap::StoredNumber => [random; 4],
            Trap::StoredPlace => return self.place() + "\nr8 = r9\nr9 = 7",
            Trap::Lookup | Trap::StoredLookup => {
                return if pick == 2 { LOOK_UP.replace("table", "array") } else { LOOK_UP.to_owned() } + "r8 = r0";
            }
            Trap::Lock => return format!("{LOCKED}r8 = r0"),
            Trap::Place => [
                "r8 = r9\nr8 += 20",
                "r1 = *(u64 *)(r10 - 8)\nr8 = *(u32 *)(r1 + 0)\nr8 += 3",
                "r8 = r9\nr8 += -14",
                "call get_prandom_u32\nr0 &= 3\nr8 = r9\nr8 += r0",
            ],
            Trap::Room => [
                "r8 = 40",
                random,
                "r1 = *(u64 *)(r10 - 8)\nr3 = *(u32 *)(r1 + 0)\nr8 = r7\nr8 -= r3\nr8 += 60",
                "r8 = r7\nr8 -= r9\nr8 += 20",
            ],
        };
        choices[pick].to_owned()
    }

    /// One of the two goes somewhere and comes back, or the state is that of a function for a while.
    fn transport(&mut self, trap: Trap) {
        let is_number =
            matches!(trap, Trap::Offset | Trap::Length | Trap::Zero | Trap::Linked | Trap::Room | Trap::StoredNumber);
        let register = if is_number || self.rng.chance(1, 2) { 8 } else { 9 };
        let name = self.label();
        let line = match (self.rng.below(12), is_number) {
            (0, true) => "*(u32 *)(r10 - 16) = r8\nr8 = *(u32 *)(r10 - 16)".to_owned(),
            (1, true) => "*(u32 *)(r10 - 12) = r8\nr8 = *(u32 *)(r10 - 12)".to_owned(),
            (2, true) => "*(u64 *)(r10 - 20) = r8\nr8 = *(u64 *)(r10 - 20)".to_owned(),
            (3, true) => "*(u16 *)(r10 - 16) = r8\nr8 = *(s16 *)(r10 - 16)".to_owned(),
            (4, true) => "*(u64 *)(r10 - 16) = r8\nr8 = *(u8 *)(r10 - 16)".to_owned(),
            (5, true) => "w8 = w8".to_owned(),
            (6, true) => "r8 += 3\nr8 -= 3".to_owned(),
            (7, true) => "*(u64 *)(r10 - 16) = r8\nr3 = 0\nr4 = r10\nr4 += -16\nr3 = atomic_fetch_add((u64 *)(r4 + 0), r3)\nr8 = r3".to_owned(),
            (8, _) => {
                self.functions += &format!("{name}: r0 = r1\nif r2 == 0 goto +1\n*(u64 *)(r10 - 8) = r1\nexit\n");
                format!("r1 = r{register}\nr2 = 1\ncall {name}\nr{register} = r0")
            }
            (9, _) => {
                self.functions += &format!("{name}: *(u64 *)(r1 + 0) = r2\nif r2 == r3 goto +1\nr3 = 1\nr0 = 0\nexit\n");
                format!("r1 = r10\nr1 += -24\nr2 = r{register}\nr3 = 1\ncall {name}\nr{register} = *(u64 *)(r10 - 24)")
            }
            (10, _) => {
                self.functions += &format!("{name}: r3 = *(u64 *)(r2 + 0)\n*(u64 *)(r2 - 8) = 1\nr0 = 1\nexit\n");
                format!(
                    "*(u64 *)(r10 - 24) = r{register}\nr1 = 2\nr2 = subprog[{name}] ll\nr3 = r10\nr3 += -24\nr4 = 0\ncall loop\nr{register} = *(u64 *)(r10 - 24)"
                )
            }
            _ => format!("*(u64 *)(r10 - 24) = r{register}\nr{register} = *(u64 *)(r10 - 24)"),
        };
        self.line(&line);
        self.spoil();
    }

    fn used(&mut self, trap: Trap) {
        let room = *self.rng.pick(&[4, 8, 20]);
        let line = match (trap, self.rng.below(3)) {
            (Trap::Offset, 0) => "r3 = r6\nr3 += r8\nr3 = *(u8 *)(r3 + 0)".to_owned(),
            (Trap::Offset, 1) => "r3 = r10\nr3 += r8\nr3 = *(u8 *)(r3 - 24)".to_owned(),
            (Trap::Offset, _) => format!("{LOOK_UP}if r0 == 0 goto out\nr0 += r8\n*(u8 *)(r0 + 8) = 1"),
            (Trap::Length, 0) => {
                "r1 = *(u64 *)(r10 - 8)\nr2 = 0\nr3 = r10\nr3 += -48\nr4 = r8\ncall xdp_load_bytes".to_owned()
            }
            (Trap::Length, 1) => {
                "r1 = map[ring] ll\nr2 = r10\nr2 += -8\nr3 = r8\nr4 = 0\ncall ringbuf_output".to_owned()
            }
            (Trap::Length, _) => {
                "r1 = *(u64 *)(r10 - 8)\nr2 = 0\nr3 = r10\nr3 += -8\nr4 = r8\ncall xdp_store_bytes".to_owned()
            }
            (Trap::Zero, 0) => "if r9 == r8 goto out\nr3 = *(u64 *)(r9 + 0)".to_owned(),
            (Trap::Zero, 1) => "if r8 == r9 goto out\nr3 = *(u64 *)(r9 + 0)".to_owned(),
            (Trap::Zero, _) => "if r9 != r8 goto +1\ngoto out\nr3 = *(u64 *)(r9 + 0)".to_owned(),
            (Trap::Linked, 0) => "if r9 > 7 goto out\nr3 = r6\nr3 += r8\nr3 = *(u8 *)(r3 + 0)".to_owned(),
            (Trap::Linked, 1) => "if w9 >= 8 goto out\nr3 = r10\nr3 += r8\nr3 = *(u8 *)(r3 - 24)".to_owned(),
            (Trap::Linked, _) => "r3 = 9\nif r3 < r9 goto out\nr3 = r6\nr3 += r8\nr3 = *(u8 *)(r3 + 0)".to_owned(),
            (Trap::Lookup, 0) => "if r8 == 0 goto out\nr3 = *(u64 *)(r9 + 0)".to_owned(),
            (Trap::Lookup, 1) => "if r9 == 0 goto out\nr3 = *(u64 *)(r8 + 8)".to_owned(),
            (Trap::Lookup, _) => "if r9 != 0 goto +1\ngoto out\n*(u64 *)(r8 + 0) = 1".to_owned(),
            (Trap::Place, 0) if self.rng.chance(1, 3) => {
                "if r9 > r7 goto +1\ngoto out\nr3 = r6\nr3 = *(u8 *)(r6 + 0)\nr3 = *(u64 *)(r3 + 0)".to_owned()
            }
            (Trap::Place, 0) => format!("r3 = r9\nr3 += {room}\nif r3 > r7 goto out\nr3 = *(u8 *)(r8 + {})", room - 2),
            (Trap::Place, 1) => format!("r3 = r8\nr3 += {room}\nif r7 <= r3 goto out\nr3 = *(u8 *)(r9 + {})", room - 1),
            (Trap::Place, _) => format!("r3 = r7\nr3 -= r9\nif r3 s< {room} goto out\nr3 = *(u8 *)(r8 + {})", room - 2),
            (Trap::Room, 0) => format!("if r8 s< {room} goto out\nr3 = *(u8 *)(r9 + {})", room - 3),
            (Trap::Room, 1) => format!("if r8 < {room} goto out\nr3 = *(u8 *)(r9 + {})", room - 3),
            (Trap::Room, _) => {
                format!("r3 = r8\nif r3 s> {} goto +1\ngoto out\nr3 = *(u8 *)(r9 + {})", room + 20, room)
            }
            (Trap::StoredLookup, _) => "r3 = *(u64 *)(r10 - 80)\nif r8 == 0 goto out\nr3 = *(u64 *)(r3 + 8)".to_owned(),
            (Trap::StoredNumber, _) => {
                "if r8 > 7 goto out\nr4 = *(u64 *)(r10 - 80)\nr3 = r6\nr3 += r4\nr3 = *(u8 *)(r3 + 0)".to_owned()
            }
            (Trap::StoredPlace, _) => {
                format!(
                    "r3 = r8\nr3 += {room}\nif r3 > r7 goto out\nr3 = *(u64 *)(r10 - 80)\nr3 = *(u8 *)(r3 + {})",
                    room - 1
                )
            }
            (Trap::Lock, 0) => "r1 = r9\ncall spin_lock\nr1 = r8\ncall spin_unlock".to_owned(),
            (Trap::Lock, _) => "r1 = r8\ncall spin_lock\n*(u64 *)(r8 + 8) = 1\nr1 = r9\ncall spin_unlock".to_owned(),
        };
        self.line(&line);
    }
}
