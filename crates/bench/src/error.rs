// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of benchmarks.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error(
        "`{tool}` cannot be started: {source}; the peers need compilers, pkg-config, DPDK and libbpf (Debian: gcc, clang, pkgconf, libdpdk-dev, libbpf-dev)"
    )]
    Missing { tool: String, source: std::io::Error },
    #[error("a peer cannot run: {what}")]
    Peer { what: String },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Table(#[from] flowloom_flowtable::TableError),
    #[error(transparent)]
    Session(#[from] flowloom_session::SessionError),
    #[error(transparent)]
    Jit(#[from] flowloom_jit::JitError),
    #[error(transparent)]
    Engine(#[from] flowloom_engine::EngineError),
    #[error(transparent)]
    Trace(#[from] flowloom_trace::TraceError),
    #[error("{what}")]
    Wrong { what: String },
}
