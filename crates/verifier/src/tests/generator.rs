// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random programs that are hard for a verifier: paths that differ in a register or slot, join, and continue with uses
//! that are safe on at least one of them.
//!
//! ```text
//!  r6  somewhere in the packet      r9, r8  numbers, or what a lookup gave      r10 - 8   the context
//!  r7  the packet's end             r0-r5   whatever was left there             r10 - 16 to r10 - 48   spilled values
//! ```
//!
//! What a register holds is followed only so far that about a third of the programs is safe.

use flowloom_testkit::Rng;

/// Appends formatted lines to the text of a [`Generator`].
macro_rules! line {
    ($generator:expr, $($text:tt)*) => {{
        let line = format!($($text)*);
        $generator.line(&line)
    }};
}
pub(super) use line;

/// What a register or slot holds, as far as the generator knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing, or one thing on one path and another on another.
    Nothing,
    Number,
    /// A number up to 15.
    Small,
    /// The address of this number of present packet bytes.
    Packet(i64),
    /// What a lookup gave, perhaps null.
    Perhaps,
    /// A value of 16 bytes.
    Value,
}
use Kind::{Nothing, Number, Packet, Perhaps, Small, Value};

/// Slots that are spilled to, as offsets from `r10`.
const SLOTS: [i64; 5] = [-16, -24, -32, -40, -48];
/// The maximal nesting of branches.
const DEEPEST: usize = 2;
/// The most forks of a program: an unpruned walk takes two paths for each.
const MAX_FORKS: usize = 9;

#[derive(Clone)]
pub(super) struct Known {
    pub(super) registers: [Kind; 10],
    pub(super) slots: [Kind; 5],
}

pub(super) struct Generator<'r> {
    pub(super) rng: &'r mut Rng,
    text: String,
    pub(super) functions: String,
    pub(super) known: Known,
    labels: usize,
    forks: usize,
    /// r8, r9 and the first slots are not to be touched.
    pub(super) is_guarded: bool,
}

/// A program's text.
pub(super) fn text(rng: &mut Rng) -> String {
    let mut registers = [Nothing; 10];
    registers[6] = Packet(34);
    (registers[8], registers[9]) = (Number, Number);
    let known = Known { registers, slots: [Nothing; 5] };
    let (text, functions) = (String::new(), String::new());
    let mut generator = Generator { rng, text, functions, known, labels: 0, forks: 0, is_guarded: false };
    generator.program();
    let mut text = generator.text + &generator.functions;
    if generator.rng.chance(1, 4) {
        text = broken(generator.rng, &text);
    }
    text
}

/// The same with a line less, twice, or with another number.
fn broken(rng: &mut Rng, text: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = 8 + rng.below(lines.len() - 8);
    let line = lines[at].clone();
    let has_label = line.contains(": ");
    match rng.below(3) {
        0 if !has_label && !line.contains("exit") => _ = lines.remove(at),
        1 if !has_label => lines.insert(at + rng.below(lines.len() - at), line),
        _ => {
            let (from, to) =
                *rng.pick(&[(" 7", " 8"), (" 4", " 12"), ("s<", "<"), (" > ", " >= "), ("u64", "u32"), (" r8", " r9")]);
            // Atomic operations of 32 bits are written otherwise.
            if !line.contains("atomic") && !line.contains("lock ") {
                lines[at] = line.replace(from, to);
            }
        }
    }
    lines.join("\n") + "\n"
}

impl Generator<'_> {
    pub(super) fn line(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    pub(super) fn label(&mut self) -> String {
        self.labels += 1;
        format!("l{}", self.labels)
    }

    fn program(&mut self) {
        self.line("*(u64 *)(r10 - 8) = r1\nr8 = *(u32 *)(r1 + 12)\nr6 = *(u32 *)(r1 + 0)\nr7 = *(u32 *)(r1 + 4)");
        self.line("r2 = r6\nr2 += 34\nif r2 > r7 goto out\nr9 = *(u8 *)(r6 + 1)");
        (self.known.registers[2], self.known.registers[1]) = (Packet(0), Nothing);
        let has_trap = self.rng.chance(1, 2);
        for _ in 0..if has_trap { self.rng.below(4) } else { 4 + self.rng.below(9) } {
            self.statement(0);
        }
        if has_trap {
            self.trap();
            for _ in 0..self.rng.below(3) {
                self.statement(0);
            }
        }
        self.line("out: r0 = 2\nexit");
    }

    /// A register that is written next.
    fn target(&mut self) -> usize {
        let all = [0, 1, 2, 3, 4, 5, 3, 4, 8, 9, 8, 9];
        *self.rng.pick(if self.is_guarded { &all[..8] } else { &all })
    }

    /// A register that holds something of this kind.
    fn holding(&mut self, fits: fn(Kind) -> bool) -> Option<usize> {
        let all: Vec<usize> = (0..10).filter(|r| fits(self.known.registers[*r])).collect();
        (!all.is_empty()).then(|| *self.rng.pick(&all))
    }

    fn number(&mut self) -> usize {
        self.holding(|kind| matches!(kind, Number | Small)).unwrap_or_else(|| {
            self.line("r5 = *(u64 *)(r10 - 8)\nr5 = *(u32 *)(r5 + 12)");
            self.set(5, Number);
            5
        })
    }

    fn packet(&mut self) -> Option<usize> {
        self.holding(|kind| matches!(kind, Packet(_)))
    }

    fn set(&mut self, register: usize, kind: Kind) {
        self.known.registers[register] = kind;
    }

    /// A call spoils the registers of its arguments.
    fn called(&mut self, gives: Kind) {
        self.known.registers[1..=5].fill(Nothing);
        self.known.registers[0] = gives;
    }

    pub(super) fn statement(&mut self, depth: usize) {
        match self.rng.below(34) {
            0..=6 if depth < DEEPEST && self.forks < MAX_FORKS => self.fork(depth),
            0..=8 => self.define_number(),
            9..=11 => self.compute(),
            12..=13 => self.move_packet(),
            14..=16 => self.check_packet(depth),
            17..=18 => self.touch_packet(),
            19..=21 => self.spill(),
            22..=24 => self.fill(),
            25 => self.look_up(),
            26 => self.touch_value(),
            27 => self.bound_number(),
            28 => self.use_offset(),
            _ => match self.rng.below(9) {
                0 => self.function(),
                1 => self.rounds(),
                2 => self.short_loop(),
                3 if !self.is_guarded => self.moves_the_packet(),
                4 => self.record(),
                5 => self.metadata(),
                6 => self.helper_on_the_stack(),
                7 if !self.is_guarded => self.locked(),
                _ => self.update(),
            },
        }
    }

    /// A condition that may hold or not.
    fn condition(&mut self) -> String {
        let (number, width) = (self.number(), *self.rng.pick(&["r", "r", "w"]));
        let cond = *self.rng.pick(&["==", "!=", ">", "<", ">=", "<=", "s>", "s<", "&"]);
        match self.rng.below(6) {
            0 if !self.is_guarded => format!("r8 {cond} {}", self.rng.below(6)),
            1 => {
                let other = self.number();
                format!("{width}{number} {cond} {width}{other}")
            }
            _ => format!("{width}{number} {cond} {}", self.rng.below(8)),
        }
    }

    /// Two paths that join; one or both change registers and slots.
    fn fork(&mut self, depth: usize) {
        self.forks += 1;
        if self.rng.chance(1, 3) {
            self.line("call get_prandom_u32");
            self.called(Number);
        }
        let condition = match self.rng.chance(1, 4) && self.known.registers[0] == Number {
            true => "r0 > 0x7fffffff".to_owned(),
            false => self.condition(),
        };
        let (first, second, before) = (self.label(), self.label(), self.known.clone());
        line!(self, "if {condition} goto {first}");
        self.body(depth);
        let falls = std::mem::replace(&mut self.known, before);
        if self.rng.chance(1, 2) {
            line!(self, "goto {second}\n{first}: r5 = 0");
            self.set(5, Small);
            self.body(depth);
            line!(self, "{second}: r4 = 1");
        } else {
            line!(self, "{first}: r4 = 1");
        }
        let both = |a: Kind, b: Kind| match (a, b) {
            (Packet(x), Packet(y)) => Packet(x.min(y)),
            (Small | Number, Small | Number) if a != b => Number,
            (Value | Perhaps, Value | Perhaps) if a != b => Perhaps,
            _ if a == b => a,
            _ => Nothing,
        };
        for (now, other) in self.known.registers.iter_mut().zip(falls.registers) {
            *now = both(*now, other);
        }
        for (now, other) in self.known.slots.iter_mut().zip(falls.slots) {
            *now = both(*now, other);
        }
        self.set(4, Small);
    }

    fn body(&mut self, depth: usize) {
        for _ in 0..1 + self.rng.below(3) {
            self.statement(depth + 1);
        }
    }

    fn define_number(&mut self) {
        let (to, from) = (self.target(), self.number());
        let (kind, line) = match self.rng.below(10) {
            0 | 1 => (Small, format!("r{to} = {}", *self.rng.pick(&[0, 0, 1, 4, 7]))),
            2 => (Number, format!("r{to} = {}", *self.rng.pick(&[100, -1, 1000, 0x10000, 34]))),
            3 => (self.known.registers[from], format!("r{to} = r{from}")),
            4 => (Number, format!("w{to} = w{from}")),
            5 => (Number, format!("r{to} = {}r{from}", self.rng.pick(&["(s8)", "(s16)", "(s32)"]))),
            6 => match self.packet() {
                Some(from) => (Number, format!("r{to} = r7\nr{to} -= r{from}")),
                None => (Small, format!("r{to} = 2")),
            },
            _ => match self.holding(|kind| matches!(kind, Packet(1..))) {
                Some(from) => {
                    (Small, format!("r{to} = *(u8 *)(r{from} + 0)\nr{to} &= {}", self.rng.pick(&[1, 7, 15, 6, 12])))
                }
                None => (Number, "r4 = 5".replace('4', &to.to_string())),
            },
        };
        self.line(&line);
        self.set(to, kind);
    }

    fn compute(&mut self) {
        let (to, width) = (self.number(), *self.rng.pick(&["r", "r", "w"]));
        let op = *self.rng.pick(&["+=", "-=", "+=", "-=", "&=", "|=", "^=", "<<=", ">>=", "s>>=", "*=", "/=", "%="]);
        let line = match self.rng.below(3) {
            0 => {
                let from = self.number();
                format!("{width}{to} {op} {width}{from}")
            }
            _ => format!("{width}{to} {op} {}", *self.rng.pick(&[1, 2, 4, 7, 14, -1, 3])),
        };
        self.line(&line);
        self.set(to, Number);
    }

    /// An address in the packet from another, by a constant or by a number.
    fn move_packet(&mut self) {
        let Some(from) = self.packet() else { return };
        let (to, Packet(there)) = (self.target(), self.known.registers[from]) else { return };
        let (line, kind) = match self.rng.below(4) {
            0 => (format!("r{to} = r{from}"), Packet(there)),
            1 => {
                let by = *self.rng.pick(&[1, 4, 14, -1, 20]);
                (format!("r{to} = r{from}\nr{to} += {by}"), Packet(there - by))
            }
            2 => ("r1 = *(u64 *)(r10 - 8)\nr6 = *(u32 *)(r1 + 0)".to_owned(), Nothing),
            _ => match self.holding(|kind| kind == Small) {
                Some(number) if number != to => (format!("r{to} = r{from}\nr{to} += r{number}"), Packet(0)),
                _ => (format!("r{to} = r{from}"), Packet(there)),
            },
        };
        self.line(&line);
        match kind {
            Nothing => (self.known.registers[6], self.known.registers[1]) = (Packet(0), Nothing),
            kind => self.set(to, kind),
        }
    }

    /// Compares an address in the packet with its end, in every shape; what is shown to be there is then touched, or
    /// not.
    fn check_packet(&mut self, depth: usize) {
        let Some(of) = self.packet() else { return };
        let to = *self.rng.pick(&[0, 1, 2, 3, 4, 5]);
        if to == of {
            return;
        }
        let there = *self.rng.pick(&[1, 2, 8, 14, 20, 40]);
        // Whether the branch is taken where the bytes are there.
        let (cond, less, jumps) = *self.rng.pick(&[
            ("rX > r7", 0, false),
            ("rX >= r7", 1, false),
            ("r7 < rX", 0, false),
            ("r7 <= rX", 1, false),
            ("rX <= r7", 0, true),
            ("r7 >= rX", 0, true),
            ("rX < r7", 1, true),
            ("r7 > rX", 1, true),
            ("rX == r7", 0, true),
            ("r7 != rX", 0, false),
        ]);
        let less = if self.rng.chance(1, 12) { 0 } else { less };
        let lines = match self.rng.below(8) {
            0 => format!(
                "r{to} = r7\nr{to} -= r{of}\nif r{to} {} goto ",
                ["< {}", "s< {}"][self.rng.below(2)].replace("{}", &there.to_string())
            ),
            1 => format!("r{to} = r7\nr{to} -= r{of}\nif w{to} s<= {} goto ", there - 1),
            2 => format!("r{to} = r7\nr{to} -= r{of}\nr{to} -= {there}\nif r{to} s< 0 goto "),
            _ => {
                let cond = cond.replace('X', &to.to_string());
                format!("r{to} = r{of}\nr{to} += {}\nif {cond} goto ", there - less)
            }
        };
        let is_distance = lines.contains("-= ");
        let (known, jumps) = (Packet(there), jumps && !is_distance);
        self.set(to, if is_distance { Number } else { Packet(0) });
        match (jumps, self.rng.chance(1, 2)) {
            (false, true) => line!(self, "{lines}out"),
            (true, true) => {
                let inside = self.label();
                line!(self, "{lines}{inside}\ngoto out\n{inside}: r5 = 0");
                self.set(5, Small);
            }
            (jumps, false) => {
                // The bytes shown to be present are accessed on one of the paths.
                self.forks += 1;
                let (end, inside, before) = (self.label(), self.label(), self.known.clone());
                match jumps {
                    true => line!(self, "{lines}{inside}\ngoto {end}\n{inside}: r5 = 0"),
                    false => line!(self, "{lines}{end}"),
                }
                self.set(of, known);
                self.touch_packet();
                if depth < DEEPEST {
                    self.statement(depth + 1);
                }
                line!(self, "{end}: r5 = 0");
                let inside = std::mem::replace(&mut self.known, before);
                for (now, then) in self.known.registers.iter_mut().zip(inside.registers) {
                    *now = if *now == then { then } else { Nothing };
                }
                for (now, then) in self.known.slots.iter_mut().zip(inside.slots) {
                    *now = if *now == then { then } else { Nothing };
                }
                self.set(5, Small);
                return;
            }
        }
        self.set(of, known);
    }

    fn touch_packet(&mut self) {
        let Some(of) = self.holding(|kind| matches!(kind, Packet(1..))) else { return };
        let Packet(there) = self.known.registers[of] else { return };
        let (to, from) = (self.target(), self.number());
        let (size, bytes) = *self.rng.pick(&[("u8", 1), ("u16", 2), ("u32", 4), ("s8", 1), ("u64", 8)]);
        let most = there - bytes + i64::from(self.rng.chance(1, 16));
        if most < 0 {
            return;
        }
        let at = if self.rng.chance(2, 3) { most } else { self.rng.below(most as usize + 1) as i64 };
        match self.rng.chance(1, 4) && size != "s8" {
            true => line!(self, "*({size} *)(r{of} + {at}) = r{from}"),
            false => {
                line!(self, "r{to} = *({size} *)(r{of} + {at})");
                self.set(to, Number);
            }
        }
    }

    fn spill(&mut self) {
        let slot = if self.is_guarded { 2 + self.rng.below(3) } else { self.rng.below(SLOTS.len()) };
        let at = SLOTS[slot];
        let Some(from) = self.holding(|kind| kind != Nothing) else { return };
        let kind = self.known.registers[from];
        let is_number = matches!(kind, Number | Small);
        let (line, kind) = match self.rng.below(9) {
            0 if is_number => (format!("*(u32 *)(r10 - {}) = r{from}", -at), Number),
            1 if is_number => (format!("*(u32 *)(r10 - {}) = r{from}", -at - 4), Nothing),
            2 if is_number => (format!("*(u8 *)(r10 - {}) = r{from}", -at - self.rng.below(8) as i64), Nothing),
            3 if is_number => (format!("*(u16 *)(r10 - {}) = r{from}", -at - self.rng.below(7) as i64), Nothing),
            4 => (format!("*(u64 *)(r10 - {}) = {}", -at, self.rng.below(3)), Small),
            5 => (format!("*(u32 *)(r10 - {}) = 0\n*(u32 *)(r10 - {}) = 0", -at, -at - 4), Small),
            6 if is_number => (format!("*(u64 *)(r10 - {}) = r{from}", -at - 4), Nothing),
            _ => (format!("*(u64 *)(r10 - {}) = r{from}", -at), kind),
        };
        self.line(&line);
        self.known.slots[slot] = kind;
    }

    fn fill(&mut self) {
        let (slot, to) = (self.rng.below(SLOTS.len()), self.target());
        let (at, kind) = (-SLOTS[slot], self.known.slots[slot]);
        let (line, kind) = match (kind, self.rng.below(8)) {
            (Packet(_) | Perhaps | Value, _) => (format!("r{to} = *(u64 *)(r10 - {at})"), kind),
            (_, 0) => (format!("r{to} = *(u32 *)(r10 - {at})"), Number),
            (_, 1) => (format!("r{to} = *(u8 *)(r10 - {})", at - self.rng.below(8) as i64), Number),
            (_, 2) => (format!("r{to} = *(s16 *)(r10 - {})", at - self.rng.below(7) as i64), Number),
            (_, 3) => (format!("r{to} = *(u32 *)(r10 - {})", at - 4), Number),
            (_, 4) => (format!("r{to} = *(u64 *)(r10 - {})", at - 4), Number),
            (Nothing, _) => (format!("r{to} = *(u64 *)(r10 - {at})"), Number),
            (kind, _) => (format!("r{to} = *(u64 *)(r10 - {at})"), kind),
        };
        self.line(&line);
        self.set(to, kind);
    }

    fn key(&mut self) {
        let number = self.number();
        match self.rng.chance(1, 2) {
            true => {
                line!(self, "*(u32 *)(r10 - 52) = {}", self.rng.below(3));
            }
            false => line!(self, "r2 = r{number}\nr2 &= 3\n*(u32 *)(r10 - 52) = r2"),
        }
    }

    fn look_up(&mut self) {
        self.key();
        let map = *self.rng.pick(&["table", "array", "array"]);
        line!(self, "r2 = r10\nr2 += -52\nr1 = map[{map}] ll\ncall map_lookup_elem");
        self.called(Perhaps);
        let to = if self.is_guarded { 0 } else { *self.rng.pick(&[0, 8, 9]) };
        if to != 0 {
            line!(self, "r{to} = r0");
            self.set(to, Perhaps);
        }
        if self.rng.chance(2, 3) {
            self.compare_with_null();
        }
    }

    fn update(&mut self) {
        self.key();
        let number = self.number();
        line!(self, "*(u64 *)(r10 - 72) = {}\n*(u64 *)(r10 - 64) = r{number}", self.rng.below(4));
        self.line("r2 = r10\nr2 += -52\nr3 = r10\nr3 += -72\nr1 = map[table] ll\nr4 = 0\ncall map_update_elem");
        self.called(Number);
    }

    fn compare_with_null(&mut self) {
        let Some(of) = self.holding(|kind| kind == Perhaps) else { return };
        let zero = self.holding(|kind| kind == Small).unwrap_or(of);
        let line = match self.rng.below(5) {
            0 if zero != of => format!("if r{of} == r{zero} goto out"),
            1 if zero != of => format!("r{zero} = 0\nif r{zero} == r{of} goto out"),
            2 => format!("if r{of} != 0 goto +1\ngoto out"),
            _ => format!("if r{of} == 0 goto out"),
        };
        self.line(&line);
        for register in 0..10 {
            // Copies of one lookup are known together; of another they are not, which the verifier has to see.
            if self.known.registers[register] == Perhaps && (register == of || self.rng.chance(1, 3)) {
                self.set(register, Value);
            }
        }
        for slot in 0..SLOTS.len() {
            if self.known.slots[slot] == Perhaps && self.rng.chance(1, 3) {
                self.known.slots[slot] = Value;
            }
        }
    }

    fn touch_value(&mut self) {
        let Some(of) = self.holding(|kind| kind == Value) else { return self.compare_with_null() };
        let (to, number) = (self.target(), self.number());
        let small = self.holding(|kind| kind == Small);
        let line = match (self.rng.below(5), small) {
            (0, Some(small)) => format!("r{to} = r{of}\nr{to} += r{small}\nr{to} = *(u8 *)(r{to} + 0)"),
            (1, _) => format!("*(u32 *)(r{of} + {}) = r{number}\nr{to} = 1", self.rng.below(13)),
            (2, _) => format!(
                "r1 = r{number}\nlock *(u64 *)(r{of} + {}) {} r1\nr{to} = 1",
                8 * self.rng.below(2),
                self.rng.pick(&["+=", "|=", "&="])
            ),
            (3, _) => format!("r1 = 3\nr1 = atomic_fetch_add((u64 *)(r{of} + 8), r1)\nr{to} = 1"),
            _ => format!("r{to} = *(u64 *)(r{of} + {})", self.rng.below(9)),
        };
        let line = if to == of && line.contains("+= r") { format!("r5 = *(u8 *)(r{of} + 1)\nr{to} = 0") } else { line };
        if line.contains("r1 =") {
            if of == 1 {
                return;
            }
            self.set(1, Number);
        }
        self.line(&line);
        self.set(to, Number);
    }

    fn bound_number(&mut self) {
        let (of, width) = (self.number(), *self.rng.pick(&["r", "r", "w"]));
        let most = *self.rng.pick(&[3, 7, 15]);
        let line = match self.rng.below(6) {
            0 => format!("{width}{of} &= {most}"),
            1 => format!("if {width}{of} > {most} goto out"),
            2 => format!("if {width}{of} >= {} goto out", most + 1),
            3 => format!("if r{of} s> {most} goto out\nif r{of} s< 0 goto out"),
            4 => format!("r5 = {most}\nif r5 < r{of} goto out"),
            _ => format!("r5 = r{of}\nif r5 > {most} goto out"),
        };
        if line.contains("r5") {
            self.set(5, Number);
        }
        self.line(&line);
        // With 32 bits nothing is known of the rest, which the verifier has to see.
        if of != 5 || !line.contains("r5 = ") {
            self.set(of, Small);
        }
    }

    /// A number that has come some way decides what is touched.
    fn use_offset(&mut self) {
        let Some(small) = self.holding(|kind| kind == Small) else { return self.bound_number() };
        let to = *self.rng.pick(&[0, 1, 2, 3]);
        let line = match self.rng.below(3) {
            0 => match self.holding(|kind| matches!(kind, Packet(16..))) {
                Some(packet) => format!("r{to} = r{packet}\nr{to} += r{small}\nr{to} = *(u8 *)(r{to} + 0)"),
                None => return,
            },
            1 => format!("r{to} = r10\nr{to} += r{small}\nr{to} = *(u8 *)(r{to} - 40)"),
            _ => format!("r{to} = r10\nr{to} += r{small}\n*(u8 *)(r{to} - 40) = {}\nr{to} = 0", self.rng.below(2)),
        };
        if to == small || line.contains(&format!("= r{to}\n")) {
            return;
        }
        self.line(&line);
        self.set(to, Number);
        if line.contains(") = ") && line.contains("- 40) =") {
            self.known.slots[1..=3].fill(Nothing);
        }
    }

    fn function(&mut self) {
        let (name, number) = (self.label(), self.number());
        let packet = self.packet().unwrap_or(6);
        line!(self, "r2 = r{packet}\nr1 = r{}\nr3 = r10\nr3 += -32\ncall {name}", if number == 2 { 9 } else { number });
        let there = if let Packet(there) = self.known.registers[packet] { there } else { 0 };
        let body = match self.rng.below(5) {
            0 if there > 0 => format!("r0 = *(u8 *)(r2 + {})\n*(u64 *)(r10 - 8) = r0\nexit", there - 1),
            1 => "r0 = r1\nif r1 > 7 goto +1\nexit\nr0 = 3\nexit".to_owned(),
            2 => "*(u64 *)(r3 + 0) = r1\nr0 = r1\nexit".to_owned(),
            3 => "r0 = 1\nif r1 == 3 goto +1\n*(u64 *)(r3 + 0) = r0\nr0 = *(u32 *)(r3 + 0)\nexit".to_owned(),
            _ => "r6 = r1\nr7 = r1\nr7 &= 7\nr6 -= r1\nr0 = r7\nif r6 == 0 goto +1\nr0 = 9\nexit".to_owned(),
        };
        self.functions += &format!("{name}: {body}\n");
        self.called(Number);
        self.known.slots[2] = Nothing;
    }

    fn rounds(&mut self) {
        let (name, number) = (self.label(), self.number());
        let is_each = self.rng.chance(1, 3);
        match is_each {
            true => line!(
                self,
                "r1 = map[table] ll\nr2 = subprog[{name}] ll\nr3 = r10\nr3 += -32\nr4 = 0\ncall for_each_map_elem"
            ),
            false => {
                line!(
                    self,
                    "r1 = r{number}\nr1 &= 3\nr2 = subprog[{name}] ll\nr3 = r10\nr3 += -32\n*(u64 *)(r10 - 32) = {}\nr4 = 0\ncall loop",
                    self.rng.below(2)
                );
            }
        }
        let context = if is_each { 4 } else { 2 };
        let body = match self.rng.below(6) {
            0 => format!("r5 = *(u64 *)(r{context} + 0)\nr5 += 1\n*(u64 *)(r{context} + 0) = r5\nr0 = 0\nexit"),
            1 => format!("r5 = *(u64 *)(r{context} + 0)\nif r5 > 7 goto +3\nr5 += 1\n*(u64 *)(r{context} + 0) = r5\nr0 = 0\nexit\nr0 = 1\nexit")
                .replace("r0 = 0\nexit\nr0 = 1\nexit", "r0 = 0\nexit"),
            2 => format!("*(u32 *)(r{context} + 4) = 7\nr0 = 1\nexit"),
            3 if is_each => "r5 = *(u32 *)(r2 + 0)\n*(u32 *)(r3 + 4) = r5\nr0 = 0\nexit".to_owned(),
            4 if !is_each => format!("r3 = r{context}\nr3 += r1\n*(u8 *)(r3 - 8) = 0\nr0 = 0\nexit"),
            _ => format!("r5 = *(u64 *)(r{context} + 0)\nr0 = 0\nif r5 == 2 goto +1\nr0 = 1\nexit"),
        };
        self.functions += &format!("{name}: {body}\n");
        self.called(Number);
        self.known.slots[2] = Nothing;
        if self.rng.chance(1, 2) {
            self.line("r3 = *(u64 *)(r10 - 32)");
            self.set(3, Number);
        }
    }

    fn short_loop(&mut self) {
        let (again, number, end) = (self.label(), self.number(), self.label());
        let sum = *self.rng.pick(&[8, 9]);
        let step = match self.known.registers[sum] {
            Number | Small => format!("r{sum} += 1"),
            _ => "r5 = 3".to_owned(),
        };
        let most = 1 + self.rng.below(4);
        if number == 4 {
            return;
        }
        match self.rng.below(3) {
            0 => line!(self, "r4 = 0\n{again}: r4 += 1\n{step}\nif r4 < {most} goto {again}"),
            1 => line!(
                self,
                "r4 = 0\n{again}: if r4 >= {most} goto {end}\nif r{number} == r4 goto {end}\nr4 += 1\ngoto {again}\n{end}: r5 = 1"
            ),
            _ => line!(
                self,
                "r4 = 0\n{again}: may_goto {end}\n{step}\nif r{number} == 3 goto {end}\nr4 += 1\nif r4 < {most} goto {again}\n{end}: r5 = 1"
            ),
        }
        self.set(4, Number);
        self.set(5, Nothing);
        if self.known.registers[sum] == Small {
            self.set(sum, Number);
        }
    }

    fn moves_the_packet(&mut self) {
        let (helper, by) = *self.rng.pick(&[
            ("xdp_adjust_head", 4),
            ("xdp_adjust_tail", -4),
            ("xdp_adjust_meta", -8),
            ("xdp_adjust_head", -14),
        ]);
        line!(self, "r1 = *(u64 *)(r10 - 8)\nr2 = {by}\ncall {helper}");
        self.called(Number);
        for kind in self.known.registers.iter_mut().chain(&mut self.known.slots) {
            *kind = if matches!(kind, Packet(_)) { Nothing } else { *kind };
        }
        self.line("r1 = *(u64 *)(r10 - 8)\nr6 = *(u32 *)(r1 + 0)\nr7 = *(u32 *)(r1 + 4)");
        self.set(6, Packet(0));
        if self.rng.chance(1, 2) {
            self.check_packet(DEEPEST);
        }
    }

    fn record(&mut self) {
        self.line("r1 = map[ring] ll\nr2 = 16\nr3 = 0\ncall ringbuf_reserve");
        self.called(Nothing);
        let (end, number, keeps) =
            (self.label(), self.number(), if self.is_guarded { 0 } else { *self.rng.pick(&[0, 8]) });
        if keeps != 0 {
            self.line("r8 = r0");
            self.set(8, Nothing);
        }
        line!(
            self,
            "if r0 == 0 goto {end}\n*(u64 *)(r{keeps} + {}) = r{}",
            self.rng.below(9),
            if number == keeps { 10 } else { number }
        );
        if self.rng.chance(1, 4) {
            self.statement(DEEPEST);
        }
        line!(self, "r1 = r{keeps}\nr2 = 0\ncall ringbuf_{}\n{end}: r5 = 0", self.rng.pick(&["submit", "discard"]));
        self.called(Nothing);
        self.set(keeps, Nothing);
        self.set(5, Nothing);
    }

    fn metadata(&mut self) {
        let end = self.label();
        let shape = *self.rng.pick(&["r3 > r4", "r3 >= r4", "r4 < r3", "r3 != r4"]);
        let at = self.rng.below(5);
        line!(
            self,
            "r1 = *(u64 *)(r10 - 8)\nr2 = *(u32 *)(r1 + 8)\nr4 = *(u32 *)(r1 + 0)\nr3 = r2\nr3 += {}\nif {shape} goto {end}\n\
             r5 = *(u32 *)(r2 + {at})\n{end}: r5 = 1",
            4 + self.rng.below(5)
        );
        self.known.registers[1..=5].fill(Nothing);
        (self.known.registers[4], self.known.registers[5]) = (Packet(0), Small);
    }

    /// Helpers that read or fill the stack, with a length that may vary.
    fn helper_on_the_stack(&mut self) {
        let number = self.number();
        let length = match self.rng.below(3) {
            0 => "r4 = 8".to_owned(),
            1 => format!("r4 = r{number}\nr4 &= 7\nr4 += 1"),
            _ => format!("r4 = r{number}\nif r4 > 16 goto out\nif r4 < 1 goto out"),
        };
        let at = *self.rng.pick(if self.is_guarded { &[-48, -40, -44] } else { &[-24, -40, -48, -44] });
        line!(
            self,
            "{length}\nr1 = *(u64 *)(r10 - 8)\nr2 = 2\nr3 = r10\nr3 += {at}\ncall {}",
            self.rng.pick(&["xdp_load_bytes", "xdp_load_bytes", "xdp_store_bytes"])
        );
        self.called(Number);
        self.known.slots[1..].fill(Nothing);
    }

    fn locked(&mut self) {
        let (end, number) = (self.label(), self.number());
        self.key();
        self.line("r2 = r10\nr2 += -52\nr1 = map[locked] ll\ncall map_lookup_elem");
        self.called(Nothing);
        line!(
            self,
            "if r0 == 0 goto {end}\nr8 = r0\nr1 = r0\ncall spin_lock\n*(u64 *)(r8 + 8) = r{}",
            if number == 8 { 9 } else { number }
        );
        self.set(8, Nothing);
        if self.rng.chance(1, 3) {
            self.line("r3 = *(u64 *)(r8 + 8)\nif r3 == 1 goto +1\n*(u32 *)(r8 + 4) = 2");
        }
        line!(self, "r1 = r8\ncall spin_unlock\n{end}: r5 = 0");
        self.called(Nothing);
        self.set(5, Nothing);
    }
}
