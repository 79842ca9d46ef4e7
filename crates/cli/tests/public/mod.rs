//! Trial of one program of a public package, and the page with all results.
#![allow(unreachable_pub, missing_docs)]

pub mod page;
pub mod trial;
