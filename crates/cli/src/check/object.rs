// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Description of an object: its programs, their resources, the targets they run on, and why not on others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flowloom_isa::insn::{call, class, imm64, jmp};
use flowloom_isa::{Insn, MapDef, Program, ProgramKind, Reference, helpers};
use flowloom_object::{Object, Refused, Unread};
use flowloom_session::engines::{Compatibility, EngineName, Reason};
use flowloom_session::{Loaded, only_program};
use serde_json::{Value, json};

use super::TargetResult;
use super::source::{line_json, make_relative};
use super::verified::Verified;
use crate::args::{CheckArgs, named_or_default};
use crate::failure::Failure;
use crate::output::{counted, print, print_json};

/// One program with its resources.
struct Described<'o> {
    program: &'o Program,
    helpers: BTreeMap<i32, usize>,
    kfuncs: BTreeMap<&'o str, usize>,
    functions: usize,
    targets: Vec<TargetResult>,
    verified: Verified,
}

/// Checks the programs of an object, or the selected one.
pub(super) fn check(args: &CheckArgs, object: &mut Object) -> Result<(), Failure> {
    make_relative(object);
    let object = &*object;
    if args.target.contains(&EngineName::MACHINE) {
        return Err(Failure::Input("the reference machine runs sources, this is an object".to_owned()));
    }
    let wanted = args.function.program.as_deref();
    let programs: Vec<&Program> = match wanted {
        Some(wanted) if object.matching(wanted).is_empty() && object.refused.iter().any(|r| r.name == wanted) => {
            Vec::new()
        }
        Some(wanted) => vec![only_program(object, wanted)?],
        None => object.programs.iter().collect(),
    };
    let refused: Vec<&Refused> =
        object.refused.iter().filter(|refused| wanted.is_none_or(|wanted| refused.name == wanted)).collect();
    let described: Vec<Described<'_>> = programs.into_iter().map(|program| describe(program, &args.target)).collect();
    if args.json {
        print_json(&as_json(args, object, &described, &refused)?)?;
    } else {
        print(&as_text(args, object, &described, &refused)?)?;
    }
    outcome(args, &described, &refused)
}

/// A single program must run on all named targets; of several programs, one must run on some target. If no target is
/// named, the verifier must also accept it.
fn outcome(args: &CheckArgs, described: &[Described<'_>], refused: &[&Refused]) -> Result<(), Failure> {
    let is_unsafe = |one: &Described<'_>| args.target.is_empty() && one.verified.is_refused();
    let runs_somewhere = |one: &Described<'_>| one.targets.iter().any(|t| t.fit.runs == Some(true));
    match (described, refused) {
        ([only], []) => {
            if is_unsafe(only) || only.targets.iter().any(|t| t.fit.runs == Some(false)) {
                return Err(Failure::Finding);
            }
            untried(args, only).map_or(Ok(()), |target| Err(not_tried(target)))
        }
        (several, _) if several.iter().any(|one| runs_somewhere(one) && !is_unsafe(one)) => Ok(()),
        (several, _) => match several.iter().find_map(|one| untried(args, one)) {
            Some(target) => Err(not_tried(target)),
            None => Err(Failure::Finding),
        },
    }
}

/// Returns a named target that cannot be tried here.
fn untried<'d>(args: &CheckArgs, described: &'d Described<'_>) -> Option<&'d TargetResult> {
    described.targets.iter().find(|target| target.fit.runs.is_none() && !args.target.is_empty())
}

fn not_tried(target: &TargetResult) -> Failure {
    let why: Vec<&str> = target.fit.reasons.iter().map(|reason| reason.what.as_str()).collect();
    Failure::Environment(format!("`{}` is not available here: {}", target.target, why.join("; ")))
}

fn is_call(insn: &Insn, source: u8) -> bool {
    insn.code == class::JMP | jmp::CALL && insn.src == source
}

fn describe<'o>(program: &'o Program, wanted: &[EngineName]) -> Described<'o> {
    let unresolved: BTreeSet<usize> = program.unresolved.iter().map(|unresolved| unresolved.insn).collect();
    let (mut helpers, mut kfuncs) = (BTreeMap::new(), BTreeMap::new());
    let mut starts = BTreeSet::from([0]);
    let mut at = 0;
    while let Some(insn) = program.insns.get(at) {
        if is_call(insn, call::HELPER) && !unresolved.contains(&at) {
            *helpers.entry(insn.imm).or_insert(0) += 1;
        }
        if is_call(insn, call::LOCAL) || insn.is_wide() && insn.src == imm64::FUNC {
            starts.insert(at as i64 + 1 + i64::from(insn.imm));
        }
        at += insn.slots();
    }
    for unresolved in &program.unresolved {
        if let Reference::Kfunc { name } = &unresolved.reference {
            *kfuncs.entry(name.as_str()).or_insert(0) += 1;
        }
    }
    let engines = named_or_default(wanted).into_iter().filter(|engine| *engine != EngineName::MACHINE);
    let (loaded, shared) = (Loaded::of_program(program.clone()), Arc::new(program.clone()));
    let targets: Vec<TargetResult> = engines.map(|engine| try_target(&loaded, &shared, engine)).collect();
    let mut verified = Verified::of(program);
    verified.kernel_walked = targets.iter().find_map(|target| target.fit.walked);
    Described { program, helpers, kfuncs, functions: starts.len(), targets, verified }
}

fn try_target(loaded: &Loaded, program: &Arc<Program>, engine: EngineName) -> TargetResult {
    let target = engine.as_str();
    if !program.kind.is_xdp() {
        let what = format!("its type is {}, expected XDP", program.kind);
        let reason = Reason { insn: Some(0), what, help: Some(help_for(program.kind)) };
        return TargetResult {
            target,
            fit: Compatibility { runs: Some(false), reasons: vec![reason], ..Compatibility::default() },
        };
    }
    let mut fit = (engine.kind().check)(loaded, &Ok(Arc::clone(program)));
    if fit.runs == Some(true) {
        fit.reasons.clear();
    }
    TargetResult { target, fit }
}

/// Help for a program that is not XDP: hooks of other types see other data than received packets.
fn help_for(kind: ProgramKind) -> &'static str {
    match kind {
        ProgramKind::Other("sched_cls" | "sched_act") => {
            "for `tc`, attach it there; for XDP, take a `struct xdp_md *` and process received packets only"
        }
        ProgramKind::Other("ext") => {
            "it replaces a function of another program; put that function into an object of its own, with its program"
        }
        _ => "load it with its own loader; to override the section, pass `--type xdp`",
    }
}

/// Comma-separated `name` or `name 3`.
fn with_counts(counts: impl Iterator<Item = (String, usize)>) -> String {
    let words = counts.map(|(name, count)| if count == 1 { name } else { format!("{name} {count}") });
    words.collect::<Vec<_>>().join(", ")
}

fn as_text(
    args: &CheckArgs,
    object: &Object,
    described: &[Described<'_>],
    refused: &[&Refused],
) -> Result<String, Failure> {
    let mut text = format!("{}: {}", object.name, counted(object.programs.len(), "program"));
    if !object.refused.is_empty() {
        text.push_str(&format!(", {} refused", object.refused.len()));
    }
    text.push('\n');
    for described in described {
        program_text(described, &mut text);
        if args.verbose {
            text.push_str(&described.verified.kernel_text("  "));
            text.push_str(&super::listing(described.program, &described.verified)?);
        }
    }
    for refused in refused {
        text.push_str(&format!(
            "program `{}`: section `{}`, refused\n  {}\n",
            refused.name, refused.section, refused.fault
        ));
    }
    // Other contents of the object do not matter if one program is selected.
    for unread in object.unread.iter().filter(|_| args.function.program.is_none()) {
        text.push_str(&format!("not part of a program: {unread}\n"));
    }
    for note in &object.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    Ok(text)
}

fn program_text(described: &Described<'_>, text: &mut String) {
    let program = described.program;
    let (kind, section) = (program.kind, &program.section);
    let size = counted(program.insns.len(), "eBPF instruction");
    text.push_str(&format!("program `{}`: {kind}, section `{section}`, {size}", program.name));
    if described.functions > 1 {
        text.push_str(&format!(" in {}", counted(described.functions, "function")));
    }
    if program.adapted > 0 {
        text.push_str(&format!(", {} adapted to the kernel's types", program.adapted));
    }
    text.push('\n');
    for map in &program.maps {
        text.push_str(&format!("  {}\n", map_text(map)));
    }
    if !described.helpers.is_empty() {
        let counts = described.helpers.iter().map(|(number, count)| (helpers::display_name(*number), *count));
        text.push_str(&format!("  helpers: {}\n", with_counts(counts)));
    }
    if !described.kfuncs.is_empty() {
        let counts = described.kfuncs.iter().map(|(name, count)| ((*name).to_owned(), *count));
        text.push_str(&format!("  kernel functions: {}\n", with_counts(counts)));
    }
    if program.kind.is_xdp() {
        text.push_str(&described.verified.text(program, "  "));
    }
    for (number, target) in described.targets.iter().enumerate() {
        let runs = super::runs_text(target.fit.runs);
        let same = described.targets[..number].iter().find(|other| is_same(other, target));
        if let Some(same) = same {
            text.push_str(&format!("  {}: {runs}, for the reasons of {}\n", target.target, same.target));
            continue;
        }
        text.push_str(&format!("  {}: {runs}\n", target.target));
        for (number, reason) in target.fit.reasons.iter().enumerate() {
            text.push_str(&format!("    {}\n", reason_text(program, reason)));
            // Help that is the same for consecutive reasons is printed after the last of them.
            let next = target.fit.reasons.get(number + 1).and_then(|next| next.help);
            if let Some(help) = reason.help.filter(|help| next != Some(*help)) {
                text.push_str(&format!("      help: {help}\n"));
            }
        }
    }
}

/// True if two targets reject the program for the same reasons.
fn is_same(one: &TargetResult, other: &TargetResult) -> bool {
    let of =
        |judgement: &TargetResult| judgement.fit.reasons.iter().map(|r| (r.insn, r.what.clone())).collect::<Vec<_>>();
    !other.fit.reasons.is_empty() && one.fit.runs == other.fit.runs && of(one) == of(other)
}

fn map_text(map: &MapDef) -> String {
    let mut text = format!(
        "map `{}`: {}, key {}, value {}, entries {}",
        map.name, map.kind, map.key_bytes, map.value_bytes, map.max_entries
    );
    if map.flags != 0 {
        text.push_str(&format!(", flags {:#x}", map.flags));
    }
    if let Some(offset) = map.spin_lock {
        text.push_str(&format!(", lock at byte {offset}"));
    }
    if let Some(inner) = &map.inner {
        text.push_str(&format!(", of {}", map_text(inner)));
    }
    if !map.members.is_empty() {
        text.push_str(&format!(", {} from the start", counted(map.members.len(), "member")));
    }
    text
}

/// `instruction 4, prog.c:12 `text`: what`.
fn reason_text(program: &Program, reason: &Reason) -> String {
    let Some(insn) = reason.insn else { return reason.what.clone() };
    let line = program.line_of(insn).filter(|line| line.line > 0);
    let place = line.map_or_else(String::new, |line| format!(", {line}"));
    format!("instruction {insn}{place}: {}", reason.what)
}

fn as_json(
    args: &CheckArgs,
    object: &Object,
    described: &[Described<'_>],
    refused: &[&Refused],
) -> Result<Value, Failure> {
    let refused: Vec<Value> =
        refused.iter().map(|r| json!({"name": r.name, "section": r.section, "reason": r.fault.to_string()})).collect();
    let programs: Result<Vec<Value>, Failure> = described.iter().map(|one| program_json(args, one)).collect();
    let unread = |part: &Unread| json!({"what": part.what, "name": part.name, "reason": part.why});
    Ok(json!({
        "object": object.name,
        "programs": programs?,
        "refused": refused,
        "not_in_a_program": object.unread.iter().map(unread).collect::<Vec<Value>>(),
        "notes": object.notes,
    }))
}

fn program_json(args: &CheckArgs, described: &Described<'_>) -> Result<Value, Failure> {
    let program = described.program;
    let calls: Vec<Value> = described
        .helpers
        .iter()
        .map(|(number, calls)| json!({"number": number, "name": helpers::name_of(*number), "calls": calls}))
        .collect();
    let kfuncs: Vec<Value> =
        described.kfuncs.iter().map(|(name, calls)| json!({"name": name, "calls": calls})).collect();
    let targets: Vec<Value> = described
        .targets
        .iter()
        .map(|target| {
            let reasons: Vec<Value> = target.fit.reasons.iter().map(|reason| reason_json(program, reason)).collect();
            json!({"target": target.target, "runs": target.fit.runs, "reasons": reasons})
        })
        .collect();
    let verified = match program.kind.is_xdp() {
        true => described.verified.json(program, args.verbose)?,
        false => Value::Null,
    };
    Ok(json!({
        "name": program.name,
        "section": program.section,
        "kind": program.kind.to_string(),
        "frags": program.takes_frags(),
        "instructions": program.insns.len(),
        "functions": described.functions,
        "adapted": program.adapted,
        "license": program.license,
        "maps": program.maps.iter().map(map_json).collect::<Vec<Value>>(),
        "helpers": calls,
        "kfuncs": kfuncs,
        "targets": targets,
        "verified": verified,
    }))
}

fn map_json(map: &MapDef) -> Value {
    json!({
        "name": map.name,
        "kind": map.kind.to_string(),
        "key_bytes": map.key_bytes,
        "value_bytes": map.value_bytes,
        "entries": map.max_entries,
        "flags": map.flags,
        "lock": map.spin_lock,
        "inner": map.inner.as_deref().map(map_json),
        "members": map.members.len(),
    })
}

fn reason_json(program: &Program, reason: &Reason) -> Value {
    let source = line_json(reason.insn.and_then(|insn| program.line_of(insn)));
    json!({"instruction": reason.insn, "source": source, "reason": reason.what, "help": reason.help})
}
