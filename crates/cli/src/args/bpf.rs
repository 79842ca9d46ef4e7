// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arguments of `flowloom bpf`.

use clap::{Args as ClapArgs, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum BpfVerb {
    /// Run a program on a memory buffer: the plugin of the public BPF conformance suites
    #[command(
        override_usage = "flowloom bpf plugin [HEXMEM] [--elf] [--engine <ENGINE>]",
        after_help = "Arguments:\n  \
            [HEXMEM]           Memory in hexadecimal bytes, optionally separated by spaces [default: none]\n\n\
            Options:\n  \
            --elf              The standard input is an eBPF object, as it is or in hexadecimal bytes; its first program runs\n  \
            --engine <ENGINE>  Engine that runs the program: interp\n\n\
            Without --elf the standard input is the program, in hexadecimal bytes with white space between them.\n\
            r1 is the address of the memory and r2 its length. Prints r0 in hexadecimal.\n\
            Options that the plugin does not know are ignored with a warning.\n\n\
            Examples:\n  \
            echo '71 10 00 00 00 00 00 00 95 00 00 00 00 00 00 00' | flowloom bpf plugin '2a ff'\n  \
            flowloom bpf plugin --elf < prog.o"
    )]
    Plugin(PluginArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PluginArgs {
    /// Unparsed arguments: suites pass options of other plugins, which must not be errors
    #[arg(hide = true, allow_hyphen_values = true, trailing_var_arg = true)]
    pub(crate) arguments: Vec<String>,
}
