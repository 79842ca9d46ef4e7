// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of benchmarks.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error(
        "`{tool}` cannot be started: {source}; the peers need a C compiler, pkg-config and DPDK (Debian: gcc, pkgconf, libdpdk-dev)"
    )]
    Missing { tool: String, source: std::io::Error },
    #[error("a peer cannot run: {what}")]
    Peer { what: String },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Table(#[from] flowloom_flowtable::TableError),
    #[error("{what}")]
    Wrong { what: String },
}
