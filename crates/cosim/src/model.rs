// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiled models.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::design::{Design, Memories};
use crate::error::CosimError;
use crate::harness;
use crate::port::{Port, parse_header};
use crate::simulation::Simulation;

/// A design compiled to an executable.
#[derive(Debug, Clone)]
pub struct Model {
    top: String,
    folder: PathBuf,
    ports: Vec<Port>,
    has_waves: bool,
    has_memories: bool,
}

impl Model {
    /// Compiles a design in a folder of `cache`, or finds it there.
    ///
    /// # Errors
    /// [`CosimError::Missing`] without Verilator, a C++ compiler or make, [`CosimError::Build`] with their messages if
    /// they reject the design. Warnings of Verilator's `-Wall` are errors.
    pub fn build(design: &Design, cache: &Path) -> Result<Model, CosimError> {
        let version = run("verilator", design, Command::new("verilator").arg("--version"))?;
        // Flags, parameters and harness are in these sources.
        let own = [include_str!("model.rs"), include_str!("design.rs"), include_str!("harness.rs")].concat();
        let digest = design.digest(&format!("{version}{own}"))?;
        let folder = cache.join(format!("{}-{digest:016x}", design.top()));
        std::fs::create_dir_all(cache).map_err(file(cache))?;
        // Held until the end: another thread or process that builds the same design waits and finds it.
        let _held = lock(&folder.with_extension("lock"))?;
        if !folder.join("model").is_file() {
            run("g++", design, Command::new("g++").arg("--version"))?;
            let name: String = version.chars().filter(|c| c.is_alphanumeric()).collect();
            let runtime = cache.join(if design.has_waves() { format!("{name}-waves") } else { name });
            compile(design, &folder, &runtime)?;
        }
        let header = read(&folder.join(format!("V{}.h", design.top())))?;
        let ports = parse_header(&header).into_iter().filter(|port| port.name != harness::CLOCK);
        Ok(Model {
            top: design.top().to_owned(),
            ports: placed(ports.collect()),
            folder,
            has_waves: design.has_waves(),
            has_memories: !design.memories().is_empty(),
        })
    }

    /// The top module.
    pub fn top(&self) -> &str {
        &self.top
    }

    /// An input other than the clock.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn input(&self, name: &str) -> Result<Port, CosimError> {
        self.port(name, true)
    }

    /// An output.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn output(&self, name: &str) -> Result<Port, CosimError> {
        self.port(name, false)
    }

    /// Bytes of the inputs of a cycle.
    pub fn input_bytes(&self) -> usize {
        self.ports.iter().filter(|port| port.is_input).map(Port::len_bytes).sum()
    }

    /// Whether simulations tell which words of memories have changed.
    pub(crate) fn has_memories(&self) -> bool {
        self.has_memories
    }

    /// Bytes of the outputs of a cycle.
    pub fn output_bytes(&self) -> usize {
        self.ports.iter().filter(|port| !port.is_input).map(Port::len_bytes).sum()
    }

    /// Starts a simulation, with registers and memories set at random from a seed.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(&self, seed: u32) -> Result<Simulation, CosimError> {
        Simulation::start(self, Command::new(self.executable()).arg(seed.to_string()))
    }

    /// Starts a simulation that writes its waveforms to a VCD file. The design needs [`Design::with_waves`].
    ///
    /// # Errors
    /// If the design has no waves, or the process cannot be started.
    pub fn start_with_waves(&self, seed: u32, waves: &Path) -> Result<Simulation, CosimError> {
        if !self.has_waves {
            return Err(CosimError::NoWaves { top: self.top.clone() });
        }
        Simulation::start(self, Command::new(self.executable()).arg(seed.to_string()).arg(waves))
    }

    fn executable(&self) -> PathBuf {
        self.folder.join("model")
    }

    fn port(&self, name: &str, is_input: bool) -> Result<Port, CosimError> {
        let mut ports = self.ports.iter().filter(|port| port.is_input == is_input);
        ports.clone().find(|port| port.name == name).cloned().ok_or_else(|| CosimError::Port {
            top: self.top.clone(),
            direction: if is_input { "input" } else { "output" },
            name: name.to_owned(),
            known: ports.by_ref().map(|port| format!("`{}`", port.name)).collect::<Vec<_>>().join(", "),
        })
    }
}

/// Ports with their offsets, those of each direction one after another.
fn placed(mut ports: Vec<Port>) -> Vec<Port> {
    let mut ends = [0, 0];
    for port in &mut ports {
        let end = &mut ends[usize::from(port.is_input)];
        port.offset_bytes = *end;
        *end += port.len_bytes();
    }
    ports
}

/// Compiles in a folder of its own, which is renamed when all is done: an interrupted build leaves no model. `runtime`
/// holds the objects that all designs share.
fn compile(design: &Design, folder: &Path, runtime: &Path) -> Result<(), CosimError> {
    let build = folder.with_extension("build");
    for left in [&build, folder] {
        // Of a build that was interrupted.
        if left.exists() {
            std::fs::remove_dir_all(left).map_err(file(left))?;
        }
    }
    std::fs::create_dir_all(&build).map_err(file(&build))?;
    let main = build.join("main.cpp");
    std::fs::write(&main, "").map_err(file(&main))?;
    let mut verilator = Command::new("verilator");
    verilator.args(["--cc", "--exe", "-Wall", "--assert", "--x-assign", "unique", "--x-initial", "unique", "-O3"]);
    // Large functions take the compiler far longer than the same code in small ones.
    verilator.args(["--output-split", "20000", "--output-split-cfuncs", "500"]);
    // Hashes go through the bits of a key: with their columns as constants, such a loop is several times as fast.
    verilator.args(["--unroll-count", "512", "--unroll-stmts", "200000"]);
    verilator.args(["-o", "model", "--top-module", design.top()]);
    verilator.args(design.has_waves().then_some("--trace")).args(design.parameter_arguments());
    verilator.arg("--Mdir").arg(&build);
    if !design.memories().is_empty() {
        let readable = build.join("memories.vlt");
        std::fs::write(&readable, readable_memories(design)).map_err(file(&readable))?;
        verilator.arg(&readable);
    }
    verilator.args(design.files()).arg("main.cpp");
    run("verilator", design, &mut verilator)?;
    let makefile = format!("V{}.mk", design.top());
    let ports = parse_header(&read(&build.join(format!("V{}.h", design.top())))?);
    let (clock, others): (Vec<Port>, Vec<Port>) = ports.into_iter().partition(|port| port.name == harness::CLOCK);
    let text = harness::source(design, &placed(others), !clock.is_empty());
    std::fs::write(&main, text).map_err(file(&main))?;
    let make = |goals: &[&str]| {
        let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut make = Command::new("make");
        make.arg("-C").arg(&build).args(["-s", "-f", &makefile, &format!("-j{jobs}")]);
        // What runs once need not be fast.
        run("make", design, make.args(["OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O2"]).args(goals))
    };
    share_runtime(design, &build, runtime, make)?;
    make(&["model"])?;
    std::fs::rename(&build, folder).map_err(file(folder))
}

/// Makes the memories readable, for Verilator.
fn readable_memories(design: &Design) -> String {
    let rules = design
        .memories()
        .iter()
        .map(|Memories { module, signal }| format!("public_flat_rd -module \"{module}\" -var \"{signal}\"\n"));
    ["`verilator_config\n".to_owned()].into_iter().chain(rules).collect()
}

/// Lets models share the compiled runtime of Verilator, which takes longer to compile than a small design.
fn share_runtime(
    design: &Design,
    build: &Path,
    runtime: &Path,
    make: impl Fn(&[&str]) -> Result<String, CosimError>,
) -> Result<(), CosimError> {
    let waves = design.has_waves().then_some("verilated_vcd_c.o");
    std::fs::create_dir_all(runtime).map_err(file(runtime))?;
    let _held = lock(&runtime.join("lock"))?;
    for object in ["verilated.o", "verilated_threads.o"].into_iter().chain(waves) {
        let (shared, own) = (runtime.join(object), build.join(object));
        if shared.is_file() {
            std::fs::copy(&shared, &own).map_err(file(&own))?;
        } else {
            make(&[object])?;
            std::fs::copy(&own, &shared).map_err(file(&shared))?;
        }
    }
    Ok(())
}

/// A lock, which other threads and processes wait for until it is dropped.
fn lock(path: &Path) -> Result<File, CosimError> {
    let lock = File::create(path).map_err(file(path))?;
    lock.lock().map_err(file(path))?;
    Ok(lock)
}

/// The error of an operation on a file.
fn file(path: &Path) -> impl FnOnce(std::io::Error) -> CosimError {
    let path = path.to_owned();
    move |source| CosimError::File { path, source }
}

/// Runs a tool and returns its standard output.
fn run(tool: &'static str, design: &Design, command: &mut Command) -> Result<String, CosimError> {
    let done = command.output().map_err(|source| CosimError::Missing { tool, source })?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let output = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).trim().to_owned();
    Err(CosimError::Build { tool, top: design.top().to_owned(), output })
}

fn read(path: &Path) -> Result<String, CosimError> {
    std::fs::read_to_string(path).map_err(|source| CosimError::File { path: path.to_owned(), source })
}
