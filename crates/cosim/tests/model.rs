// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds that fail, ports that do not exist, and waveforms.

use flowloom_cosim::{CosimError, Model};

use crate::common::{block, build, top};

fn fails(design: &flowloom_cosim::Design) -> Option<CosimError> {
    match Model::build(design, &top().join("target/cosim")) {
        Ok(model) => panic!("`{}` was built", model.top()),
        Err(error) if error.is_missing_tool() => {
            println!("SKIP model: {error}");
            None
        }
        Err(error) => Some(error),
    }
}

#[test]
fn parameters_out_of_range_are_refused_at_elaboration() {
    for (name, parameter, value, message) in [
        ("prim/fl_fifo", "Depth", 1, "Depth is 1, expected at least 2"),
        ("prim/fl_fifo", "Width", 0, "Width is 0, expected at least 1"),
        ("prim/fl_ram", "Depth", 1, "Depth is 1, expected at least 2"),
        ("prim/fl_skid", "Width", 0, "Width is 0, expected at least 1"),
        ("table/fl_hash", "HashBits", 7, "HashBits is 7, expected 8 to 32"),
        ("table/fl_hash", "Rows", 1025, "Rows is 1025, expected 1 to 2^HashBits"),
    ] {
        let Some(error) = fails(&block(name).parameter(parameter, value)) else { return };
        assert!(error.to_string().contains(message), "{name} {parameter}={value}: {error}");
    }
}

#[test]
fn errors_name_ports_and_lengths() {
    let Some(model) = build("errors_name_ports_and_lengths", &block("prim/fl_skid")) else { return };
    let known = "`rst_i`, `in_valid_i`, `in_data_i`, `out_ready_i`";
    let error = model.input("valid_i").unwrap_err().to_string();
    assert!(error.starts_with("`fl_skid` has no input `valid_i`; it has `"), "{error}");
    assert!(known.split(", ").all(|name| error.contains(name)), "{error}");
    let error = model.start(1).unwrap().run(&[0; 5]).unwrap_err().to_string();
    assert_eq!(error, "inputs are 5 bytes, a cycle of `fl_skid` takes 4");
    let error = model.start_with_waves(1, &top()).unwrap_err().to_string();
    assert_eq!(error, "`fl_skid` was built without waveforms; build it with `Design::with_waves`");
}

#[test]
fn waveforms_are_written_on_demand() {
    let Some(model) = build("waveforms_are_written_on_demand", &block("prim/fl_skid").with_waves()) else { return };
    // Without a file, no waveforms are written.
    model.start(1).unwrap().run(&[0; 40]).unwrap();
    let waves = std::env::temp_dir().join(format!("flowloom-waves-{}.vcd", std::process::id()));
    let mut simulation = model.start_with_waves(1, &waves).unwrap();
    simulation.run(&[0; 40]).unwrap();
    assert_eq!(simulation.cycles(), 10);
    drop(simulation);
    let text = std::fs::read_to_string(&waves).unwrap();
    std::fs::remove_file(&waves).unwrap();
    assert!(text.contains("out_valid_q") && text.contains("\n#19\n"), "{text}");
}

#[test]
fn threads_that_build_one_design_share_its_model() {
    let cache = std::env::temp_dir().join(format!("flowloom-cosim-{}", std::process::id()));
    let outputs: Vec<_> = std::thread::scope(|scope| {
        let build = || Model::build(&block("prim/fl_skid"), &cache).map(|model| model.start(1).unwrap().run(&[0; 4]));
        let running = [scope.spawn(build), scope.spawn(build)];
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    _ = std::fs::remove_dir_all(&cache);
    for output in outputs {
        match output {
            Ok(output) => assert!(output.is_ok(), "{output:?}"),
            Err(error) if error.is_missing_tool() => println!("SKIP model: {error}"),
            Err(error) => panic!("{error}"),
        }
    }
}
