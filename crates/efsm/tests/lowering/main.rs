//! The lowering judged by the reference machine: on crafted and random packets a function does the same as the machine
//! and as its lowered program in the interpreter, with counters and without, packet by packet and in the state it leaves.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod agree;
mod fields;
mod golden;
mod large_sets;
mod limits;
mod locks;
mod random;
mod sources;
mod tables;
