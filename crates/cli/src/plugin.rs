// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom bpf plugin`: the protocol of the public BPF conformance suites.
//!
//! A suite starts the plugin once per case. The first argument is the memory in hexadecimal bytes; it is omitted if the
//! memory is empty. The program comes on stdin in hexadecimal bytes, with `--elf` as an object. The plugin prints `r0`
//! in hexadecimal and exits with 0, or reports an error and exits with another code.

use std::io::Read;
use std::sync::Arc;

use flowloom_isa::{Insn, Program};
use flowloom_session::ELF_MAGIC;
use flowloom_session::engines::{ENGINES, EngineName};

use crate::args::PluginArgs;
use crate::failure::{Failure, with_causes};
use crate::output::{counted, print, print_note};

/// Names of the engines that run plugin programs, for messages.
fn engines() -> String {
    let known = ENGINES.iter().filter(|engine| engine.plugin.is_some());
    known.map(|engine| format!("`{}`", engine.name)).collect::<Vec<_>>().join(" and ")
}

const STDIN: &str = "standard input";

#[derive(Default)]
struct PluginOptions {
    memory: Option<String>,
    engine: Option<String>,
    elf: bool,
    /// Options that this plugin does not know.
    ignored: Vec<String>,
}

pub(crate) fn plugin(args: &PluginArgs) -> Result<(), Failure> {
    let options = parse_options(&args.arguments)?;
    for ignored in &options.ignored {
        print_note(&format!("ignored unknown option `{ignored}`"));
    }
    let name = options.engine.as_deref().unwrap_or(EngineName::INTERP.as_str());
    let Some(run) = EngineName::by_name(name).and_then(|engine| engine.kind().plugin) else {
        return Err(Failure::Input(format!("unknown plugin engine `{name}`, expected one of {}", engines())));
    };
    let memory = bytes(options.memory.as_deref().unwrap_or(""), "the memory")?;
    let mut input = Vec::new();
    std::io::stdin()
        .lock()
        .read_to_end(&mut input)
        .map_err(|error| Failure::Environment(format!("the {STDIN} cannot be read: {error}")))?;
    let program = program(&input, options.elf)?;
    match run(Arc::new(program), &memory) {
        Ok(r0) => print(&format!("{r0:x}\n")),
        // Conformance suites test for programs that are rejected or abort.
        Err(error) => {
            print_note(&error);
            Err(Failure::Finding)
        }
    }
}

/// Parses the arguments. The word after an unknown option is taken as its value, unless it is an option, or could be
/// the memory and no memory was given yet.
fn parse_options(arguments: &[String]) -> Result<PluginOptions, Failure> {
    let mut options = PluginOptions::default();
    let mut rest = arguments.iter().peekable();
    while let Some(argument) = rest.next() {
        let (name, value) = argument.split_once('=').map_or((argument.as_str(), None), |(n, v)| (n, Some(v)));
        match name {
            // Runners pass an empty argument if they have no options.
            _ if argument.trim().is_empty() => {}
            "--elf" if value.is_none() => options.elf = true,
            "--engine" => {
                let value = value.map(str::to_owned).or_else(|| rest.next().cloned());
                let none = || Failure::Input(format!("--engine has no value, expected {}", engines()));
                options.engine = Some(value.ok_or_else(none)?);
            }
            _ if name.starts_with('-') => {
                let is_memory = |text: &str| options.memory.is_none() && bytes(text, "the memory").is_ok();
                let is_value = |next: &&String| {
                    value.is_none() && !next.starts_with('-') && !next.trim().is_empty() && !is_memory(next)
                };
                let value = rest.next_if(is_value);
                let value = value.map(|value| format!(" {value}")).unwrap_or_default();
                options.ignored.push(format!("{argument}{value}"));
            }
            _ if options.memory.is_none() => options.memory = Some(argument.clone()),
            _ => options.ignored.push(argument.clone()),
        }
    }
    Ok(options)
}

fn program(input: &[u8], is_elf: bool) -> Result<Program, Failure> {
    if !is_elf {
        if input.starts_with(ELF_MAGIC) {
            return Err(Failure::Input(format!(
                "the {STDIN} is an object, expected hexadecimal bytes; pass --elf for objects"
            )));
        }
        let code = bytes(text(input)?, "the program")?;
        let (slots, rest) = code.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(Failure::Input(format!(
                "the program has {}, expected a multiple of 8",
                counted(code.len(), "byte")
            )));
        }
        let insns = slots.iter().map(|slot| Insn::from_bytes(*slot)).collect();
        return Ok(Program { section: STDIN.to_owned(), insns, ..Program::default() });
    }
    let decoded;
    let object = if input.starts_with(ELF_MAGIC) {
        input
    } else {
        decoded = bytes(text(input)?, "the object")?;
        &decoded
    };
    // An invalid object counts as an invalid program.
    let object = flowloom_object::read(object, STDIN).map_err(|error| {
        print_note(&with_causes(&error));
        Failure::Finding
    })?;
    if let Some(refused) = object.refused.iter().find(|refused| refused.before == 0) {
        print_note(&with_causes(refused));
        return Err(Failure::Finding);
    }
    let first = object.programs.into_iter().next();
    first.ok_or_else(|| Failure::Input(format!("the object on the {STDIN} has no program")))
}

fn text(input: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(input).map_err(|error| {
        let at = error.valid_up_to();
        Failure::Input(format!("the {STDIN} is not ASCII: byte 0x{:02x} at offset {at}", input[at]))
    })
}

/// Parses words of hexadecimal bytes; a word of one digit is a byte.
fn bytes(text: &str, what: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    for word in text.split_whitespace() {
        let digits: Option<Vec<u8>> = word.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
        match digits.as_deref() {
            Some([digit]) => bytes.push(*digit),
            Some(digits) if digits.len() % 2 == 0 => {
                bytes.extend(digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low));
            }
            _ => {
                let expected = "bytes of two hexadecimal digits";
                let after = counted(bytes.len(), "byte");
                let word: String = word.chars().take(32).collect();
                return Err(Failure::Input(format!("{what}: found `{word}` after {after}, expected {expected}")));
            }
        }
    }
    Ok(bytes)
}
