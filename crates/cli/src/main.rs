// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `flowloom` command: reads its arguments, calls one crate, prints.

#![forbid(unsafe_code)]

mod args;
mod build;
mod check;
mod describe;
mod draw;
mod entries;
mod explain;
mod failure;
mod fields;
mod files;
mod fmt;
mod live;
mod map;
mod new;
mod observe;
mod output;
mod plugin;
mod port_by;
mod predict;
mod report;
mod reporter;
mod reproduce;
mod run;
mod state_file;
mod test;
mod top;
mod trace;
mod traced;
mod vectors;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, BpfVerb, TraceVerb, Verb};

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.verb {
        Verb::Run(verb) => run::run(verb),
        Verb::Check(verb) => check::check(verb),
        Verb::Verify(verb) => verify::verify(verb),
        Verb::Test(verb) => test::test(verb),
        Verb::Build(verb) => build::build(verb),
        Verb::Predict(verb) => predict::predict(verb),
        Verb::Fmt(verb) => fmt::fmt(verb),
        Verb::New(verb) => new::new(verb),
        Verb::Draw(verb) => draw::draw(verb),
        Verb::Explain(verb) => explain::explain(verb),
        Verb::Fields(verb) => fields::fields(verb),
        Verb::Reproduce(verb) => reproduce::reproduce(verb),
        Verb::Map { verb } => map::map(verb),
        Verb::Top(verb) => top::top(verb),
        Verb::Reload(verb) => observe::reload(verb),
        Verb::Bpf { verb: BpfVerb::Plugin(verb) } => plugin::plugin(verb),
        Verb::Trace { verb: TraceVerb::Info(verb) } => trace::info(verb),
        Verb::Trace { verb: TraceVerb::Gen(verb) } => trace::generate(verb),
        Verb::Trace { verb: TraceVerb::Profiles(verb) } => trace::profiles(verb),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}
