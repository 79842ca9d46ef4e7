//! What a program may do, found out before it runs.

#[allow(dead_code, unused_imports, reason = "the pass that walks a program with these numbers is built on top of them")]
mod number;
