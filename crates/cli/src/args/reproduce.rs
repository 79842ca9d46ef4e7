// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of `flowloom reproduce`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

#[derive(Debug, ClapArgs)]
pub(crate) struct ReproduceArgs {
    /// The table or figure: an id that --list prints
    #[arg(value_name = "ID", required_unless_present = "list", conflicts_with = "list")]
    pub(crate) id: Option<String>,
    /// List the tables and figures
    #[arg(long)]
    pub(crate) list: bool,
    /// The folder with the functions that are measured
    #[arg(long, value_name = "FOLDER", default_value = "functions")]
    pub(crate) functions: PathBuf,
    /// Print the derivation of each number
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
