// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Table of the results of all cases.

use std::collections::BTreeMap;

use flowloom_isa::disasm;

use super::{Judged, Kernel, Ours, reasons};

/// Prints the table and the lists.
pub fn print(judged: &[Judged], unread: &[String]) {
    let count = |f: fn(&Judged) -> bool| judged.iter().filter(|one| f(one)).count();
    let lines = [
        (judged.len(), "programs"),
        (count(|one| one.case.must_fail), "of these are written to be refused"),
        (count(|one| matches!((&one.ours, &one.kernel), (Ours::Accepts(_), Kernel::Accepts))), "are accepted by both"),
        (count(is_refused_by_both), "are refused by both"),
        (count(|one| is_refused_by_both(one) && one.case.must_fail), "of these are written to be refused"),
        (count(is_stricter), "are refused by Flowloom alone"),
        (count(is_laxer), "are refused by the kernel alone"),
        (count(|one| matches!(one.ours, Ours::Lacks(_))), "ask for what Flowloom does not have, and it says so"),
        (count(is_unasked), "could not be shown to the kernel"),
        (unread.len(), "functions are not read"),
    ];
    for (number, what) in lines {
        println!("{number:6} {what}");
    }
    println!("\nFor lack of, by the kernel's opinion:");
    for (words, [accepts, refuses, unasked]) in lacking(judged) {
        println!("  {words}: {accepts} accepted, {refuses} refused, {unasked} not shown to it");
    }
    println!("\nNot read:");
    unread.iter().for_each(|why| println!("  {why}"));
    println!("\nRefused by Flowloom alone:");
    for one in judged.iter().filter(|one| is_stricter(one)) {
        if let Ours::Refuses(why) = &one.ours {
            println!("  {}: {why}: {}", one.case.name, reasons::of_refusal(one).unwrap_or("NO REASON"));
        }
    }
    println!("\nRefused by the kernel alone:");
    for one in judged.iter().filter(|one| is_laxer(one)) {
        if let Kernel::Refuses(words) = &one.kernel {
            println!("  {}: {words}: {}", one.case.name, reasons::of_acceptance(one).unwrap_or("NO REASON"));
        }
    }
    println!("\nReasons that are not needed (any more):");
    for (case, words) in reasons::unneeded(judged) {
        println!("  `{case}`, `{words}`");
    }
    println!("\nNot shown to the kernel:");
    for one in judged.iter().filter(|one| is_unasked(one)) {
        if let (Kernel::Unasked(why), ours) = (&one.kernel, &one.ours) {
            let ours = if let Ours::Refuses(why) = ours { why } else { "accepted" };
            println!("  {}: {why}; Flowloom: {ours}", one.case.name);
        }
    }
}

/// Unsupported features, with the kernel's results for their programs.
fn lacking(judged: &[Judged]) -> BTreeMap<&str, [usize; 3]> {
    let mut by_words: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for one in judged {
        if let Ours::Lacks(words) = &one.ours {
            let opinion = match one.kernel {
                Kernel::Accepts => 0,
                Kernel::Refuses(_) => 1,
                Kernel::Unasked(_) => 2,
            };
            // Map kinds and callable functions are listed elsewhere.
            let words = words.split(", expected ").next().unwrap_or(words);
            by_words.entry(words).or_default()[opinion] += 1;
        }
    }
    by_words
}

/// Prints programs as text, with the predecessors of unreachable instructions where known.
pub fn print_programs(judged: &[Judged]) {
    for one in judged {
        println!("\n{}: {:?}", one.case.name, one.kernel);
        match disasm::disassemble(&one.case.program.insns, &one.case.program.maps) {
            Ok(text) => println!("{text}"),
            Err(error) => println!("{error}"),
        }
        match &one.ours {
            Ours::Accepts(proof) => println!("accepted; not reached: {:?}", proof.dead().collect::<Vec<_>>()),
            Ours::Refuses(why) | Ours::Lacks(why) => println!("{why}"),
            Ours::Breaks => println!("the verifier breaks"),
        }
    }
}

pub fn is_refused_by_both(one: &Judged) -> bool {
    matches!((&one.ours, &one.kernel), (Ours::Refuses(_), Kernel::Refuses(_)))
}

/// True if we refuse what the kernel accepts.
pub fn is_stricter(one: &Judged) -> bool {
    matches!((&one.ours, &one.kernel), (Ours::Refuses(_), Kernel::Accepts))
}

/// True if we accept what the kernel refuses.
pub fn is_laxer(one: &Judged) -> bool {
    matches!((&one.ours, &one.kernel), (Ours::Accepts(_), Kernel::Refuses(_)))
}

/// True if we have a result and the kernel has none.
pub fn is_unasked(one: &Judged) -> bool {
    matches!((&one.ours, &one.kernel), (Ours::Accepts(_) | Ours::Refuses(_), Kernel::Unasked(_)))
}
