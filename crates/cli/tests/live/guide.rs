//! The worked chapter of the book: its function, its scenarios, and what a reader sees between two namespaces.

use crate::common::{ok, top};
use crate::lab::Lab;

/// The first block of the chapter in this language.
fn block(page: &str, language: &str) -> String {
    let start = page.find(&format!("```{language}\n")).unwrap_or_else(|| panic!("no block of {language}"));
    let text = &page[start + language.len() + 4..];
    text[..text.find("```").unwrap()].to_owned()
}

#[test]
fn the_guide_leads_to_a_deployed_function() {
    let Some(lab) = Lab::new("the_guide_leads_to_a_deployed_function", &[]) else { return };
    let page = std::fs::read_to_string(top().join("docs/book/src/guide.md")).unwrap();
    let (source, scenario) = (block(&page, "efsm"), block(&page, "scenario"));
    let folder = lab.folder().join("syn_limit");
    std::fs::create_dir(&folder).unwrap();
    lab.put("syn_limit/syn_limit.efsm", &source);
    lab.put("syn_limit/syn_limit.scenario", &scenario);
    let folder = folder.to_str().unwrap();
    ok(&["fmt", "--check", folder]);
    ok(&["check", folder]);
    let tested = ok(&["test", folder, "--require-coverage"]);
    let shown = "syn_limit          2  ok       ok      ok      4 rows, 2 timers, 2 defaults";
    assert!(tested.contains(shown) && page.contains(shown), "{tested}");

    // Between hosts under a name of its own, and slowly enough for a machine that is busy.
    let function = lab.unique();
    lab.put_named("limit.efsm", &source.replace("(hard 1s)", "(hard 1h)"), &function);
    let said = lab.run(
        r#"
        host a 1; addresses a 1; neighbours a 1
        peer serve 10.9.1.2:80 >serving &
        start limit.efsm -i v1
        for number in 1 2 3 4 5; do as a reach 10.9.1.2:80; done
        as a connect 10.9.1.2:80
        "$FLOWLOOM" map dump $1 | sed 's/in [0-9.]*s/in TIME/' | grep ip.src
        "$FLOWLOOM" map delete $1 key ip.src=10.9.1.1
        as a reach 10.9.1.2:80
        "$FLOWLOOM" map update $1 key ip.src=10.9.1.1 value state=blocked hard_deadline=+5m
        as a connect 10.9.1.2:80
        finish
        start limit.efsm -i v1 --param most=20
        for number in 1 2 3 4 5 6 7; do as a reach 10.9.1.2:80; done
        finish
        attached v1"#,
        &[&function],
    );
    let open = |count: usize| "open\n".repeat(count);
    let blocked = "ip.src=10.9.1.1: hard_deadline=in TIME opened=5 state=blocked\n";
    assert_eq!(said, format!("{}closed\n{blocked}{}closed\n{}0\n", open(5), open(1), open(7)));
}
