// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of the repository with their parameters, as the proofs about the reference machine take them.
#![allow(dead_code, unreachable_pub, unused_imports, missing_docs, clippy::panic)]

#[path = "../../../verify/tests/common/captures.rs"]
pub mod captures;
#[path = "../../../verify/tests/common/engines.rs"]
pub mod engines;
#[path = "../../../verify/tests/common/random/mod.rs"]
pub mod random;
#[path = "../../../verify/tests/common/shipped.rs"]
pub mod shipped;
