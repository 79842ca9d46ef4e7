//! One program of a public package, tried by the commands; and the page that tells of all.
#![allow(unreachable_pub, missing_docs)]

pub mod page;
pub mod trial;
