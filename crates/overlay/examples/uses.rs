fn main() {
    let set = std::env::args().nth(1).unwrap();
    let parameters = flowloom_overlay::Parameters::by_name(&set).unwrap();
    for path in std::env::args().skip(2) {
        let text = std::fs::read_to_string(&path).unwrap();
        let function = match flowloom_efsm::compile(&path, &text, &[]) { Ok(f) => f.0, Err(_) => { println!("{path}: bad"); continue } };
        let c = flowloom_overlay::compile(&function, parameters);
        let over: Vec<String> = c.uses.iter().filter(|u| u.exceeds()).map(|u| u.to_string()).collect();
        println!("{}: {}", function.name, if over.is_empty() && c.problems.is_empty() { "fits" } else { "no" });
        if std::env::var("ALL").is_ok() { for u in &c.uses { println!("   {u}"); } }
        for o in over { println!("   {o}"); }
        for p in c.problems { println!("   ! {} {} {}: {}", p.element, function.source.locate(p.span.start).0, p.what, p.help.unwrap_or("")); }
    }
}
