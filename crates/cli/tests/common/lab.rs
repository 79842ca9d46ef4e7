// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network of hosts and functions, and the shell functions for test scripts.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use flowloom_testkit::skip;
use serde_json::Value;

use super::{Ran, kernel, put, top};

/// Prefix of every script.
///
/// `host NAME N` makes a host in its own network namespace, with `eN` there at 10.9.N.1/24 and fd00:N::1/64, and `vN`
/// here at .2 and ::2. `start ARGUMENTS` runs a function and returns once it is attached; its reports are written to
/// `out`, its remarks to `err`. `finish` ends it and keeps its exit code in `code`. `heed ARGUMENTS` runs it, follows
/// its advice on offloads, and ends it; `heeded ARGUMENTS` then starts it again and expects no advice. `peer COMMAND`
/// runs a command as a host, `as NAME COMMAND` as the host of this name (see `peer.rs`). `serve NAME FILE COMMAND`
/// starts one that serves until the end, with its output in a file. `play SCRIPT` runs a script on all hosts (see
/// `actor.rs`). `capture NAME DEV FILE` records a host's interface in both directions, until `captured`.
const PREAMBLE: &str = r#"
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmpfs /run
mkdir /run/netns
name=${1-}
host() {
    ip netns add $1
    ip link add v$2 address 02:00:00:00:$2:02 type veth peer name e$2 address 02:00:00:00:$2:01 netns $1
    ip link set dev v$2 up
    ip -n $1 link set dev lo up
    ip -n $1 link set dev e$2 up
}
addresses() {
    ip address add 10.9.$2.2/24 dev v$2
    ip -6 address add fd00:$2::2/64 dev v$2 nodad
    ip -n $1 address add 10.9.$2.1/24 dev e$2
    ip -n $1 -6 address add fd00:$2::1/64 dev e$2 nodad
}
neighbours() {
    ip -n $1 neighbour replace 10.9.$2.2 lladdr 02:00:00:00:$2:02 dev e$2 nud permanent
    ip neighbour replace 10.9.$2.1 lladdr 02:00:00:00:$2:01 dev v$2 nud permanent
}
wait_for() {
    for _ in $(seq ${2-200}); do if eval "$1"; then return 0; fi; sleep 0.05; done
    echo "waited in vain for: $1" >&2
    tail -n 2 out err >&2 2>/dev/null
    exit 1
}
start() {
    rm -f out err
    "$FLOWLOOM" run "$@" --json >out 2>err &
    pid=$!
    # The kernel looks at large functions for seconds, where many do so at once.
    wait_for 'grep -q started out || ! kill -0 $pid 2>/dev/null' 1200
    grep -q started out || { cat err >&2; exit 1; }
}
finish() {
    code=0
    kill -${1:-INT} $pid
    wait $pid || code=$?
}
heed() {
    start "$@"
    sed -n 's/.*run `\(.*\)`$/\1/p' err >advice
    bash -e advice >/dev/null
    finish
}
heeded() {
    heed "$@"
    start "$@"
    if grep -q 'run `' err; then cat err >&2; exit 1; fi
}
peer() {
    FLOWLOOM_PEER="$*" "$PEER" --ignored --exact --nocapture peer::speak 2>/dev/null | sed -n 's/^peer: //p'
}
as() {
    local host=$1; shift
    ip netns exec $host bash -c "$(declare -f peer); peer $*"
}
serve() {
    local host=$1 file=$2; shift 2
    FLOWLOOM_PEER="$*" $([ $host = - ] || echo ip netns exec $host) "$PEER" --ignored --exact --nocapture peer::speak >$file 2>&1 &
    wait_for "grep -qs serving $file"
}
play() {
    FLOWLOOM_SCRIPT=$1 "$PEER" --ignored --exact --nocapture actor::direct >played.$1 2>&1 || { cat played.$1 >&2; exit 1; }
    sed -n 's/^play: //p' played.$1
}
capturing=
capture() {
    # Receivers merge no segments: their checksums would not be those of the wire.
    ip -n $1 link set dev $2 gro_max_size 1000
    ip netns exec $1 dumpcap -q -i $2 -w $3 2>$3.log &
    capturing="$capturing $!"
    wait_for "grep -qs File: $3.log"
}
captured() {
    # What the kernel still holds for them comes within their next look.
    sleep 0.5
    kill -INT $capturing
    wait $capturing || true
    capturing=
}
attached() { ip -details link show dev $1 | grep -c prog/xdp || true; }
"#;

/// XDP attach modes.
pub const MODES: [&str; 2] = ["native", "skb"];

/// The text of a file of the repository.
pub fn shipped(path: &str) -> String {
    std::fs::read_to_string(top().join(path)).unwrap()
}

/// A folder, and scripts that run in it.
pub struct Lab {
    test: &'static str,
    folder: tempfile::TempDir,
}

impl Lab {
    /// `None`, with a SKIP line, if the kernel, the tools or the namespaces are not available.
    pub fn new(test: &'static str, tools: &[&str]) -> Option<Lab> {
        if !kernel(test) {
            return None;
        }
        for tool in [&["ip", "bash"], tools].concat() {
            if Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
                skip(test, &format!("`{tool}` is not installed"));
                return None;
            }
        }
        let lab = Lab { test, folder: tempfile::tempdir().unwrap() };
        match lab.sh("host probe 9", &[]) {
            Ok(ran) if ran.code == Some(0) => Some(lab),
            Ok(ran) => {
                skip(test, &format!("namespaces cannot be made here: {}", ran.stderr.trim()));
                None
            }
            Err(error) => {
                skip(test, &format!("`unshare` does not run: {error}"));
                None
            }
        }
    }

    fn sh(&self, script: &str, arguments: &[&str]) -> std::io::Result<Ran> {
        let mut command = Command::new("unshare");
        // `--kill-child` ends the processes that a script leaves running.
        command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-eu", "-c"]);
        command.arg(format!("{PREAMBLE}{script}")).arg(self.test).args(arguments);
        command.env("FLOWLOOM", env!("CARGO_BIN_EXE_flowloom")).env("PEER", std::env::current_exe()?);
        command.env("TOP", top().canonicalize()?);
        command.current_dir(self.folder.path()).stdin(Stdio::null()).output().map(Ran::from)
    }

    /// Runs a script that must succeed. Returns its stdout.
    pub fn run(&self, script: &str, arguments: &[&str]) -> String {
        let ran = self.sh(script, arguments).unwrap();
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        assert_eq!(ran.code, Some(0), "{arguments:?}:\n{}\n{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    /// A function name that is unique on this machine: programs in the kernel are visible to all tests.
    pub fn unique(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        format!("f{:x}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes a source into the folder, with its function renamed to a unique name, which is returned.
    pub fn put_unique(&self, file: &str, source: &str) -> String {
        let function = self.unique();
        let (head, tail) = source.split_once("function ").unwrap();
        let (_, tail) = tail.split_once(';').unwrap();
        self.put(file, format!("{head}function {function};{tail}"));
        function
    }

    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub fn put(&self, file: &str, contents: impl AsRef<[u8]>) {
        put(&self.folder, file, contents);
    }

    pub fn read(&self, file: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.path().join(file)).unwrap()).into_owned()
    }

    pub fn json(&self, file: &str) -> Value {
        let text = self.read(file);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}:\n{text}"))
    }

    /// The last report of a run.
    pub fn report(&self) -> Value {
        let text = self.read("out");
        let last = text.lines().last().unwrap_or_else(|| panic!("no report"));
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}:\n{text}"))
    }
}
