fn main() {
    let set = std::env::args().nth(1).unwrap();
    let mut p = flowloom_overlay::Parameters::by_name(&set).unwrap().clone();
    if let Some(c) = std::env::args().nth(2) { p.contexts = c.parse().unwrap(); }
    for (n, v) in flowloom_overlay::rtl::module_parameters(&p) { println!("{n}={v}"); }
}
