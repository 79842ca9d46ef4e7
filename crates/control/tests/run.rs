// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clients of a run whose packets come from memory, without pause.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flowloom_control::{
    Client, ControlError, Facts, LeftOut, LoadFunction, MetricsServer, New, Refusal, Report, Server, Shared, Subject,
    UpdateRule, UserRun, Watched, Worker, desk, runs,
};
use flowloom_exec::{Description, SweepClock};
use flowloom_ports::{CaptureSink, CaptureSource, Device, Hooks, LoopOptions, Statistics, Visits, run_loop};
use flowloom_session::engines::{CoresOptions, EngineName, EngineOptions, InPlaceEngine};
use flowloom_session::{FunctionFile, Loaded, SessionError, with_causes};
use flowloom_testkit::PacketBuilder;
use flowloom_trace::CapturedPacket;

/// Counts the packets of each source address, and forwards them.
const COUNT: &str = "function count;
stateful hosts {
    key ipv4.src;
    size 4096;
    states seen;
    reg packets: u64;
    on seen stay { packets += 1; forward(2); }
}
";
/// The same table, another verdict.
const DROPS: &str = "function drops;
stateful hosts {
    key ipv4.src;
    size 4096;
    states seen;
    reg packets: u64;
    on seen stay { packets += 1; drop; }
}
";
/// A table with another register.
const WIDER: &str = "function wider;
stateful hosts {
    key ipv4.src;
    size 4096;
    states seen;
    reg octets: u64;
    on seen stay { octets += 1; drop; }
}
";
const HOSTS: u8 = 40;

fn packets() -> Vec<CapturedPacket> {
    let packet = |host: u8| {
        let bytes = PacketBuilder::new().ipv4([10, 0, 0, host], [10, 1, 0, 1]).udp(1000, 53).build();
        let original_len_bytes = bytes.len() as u32;
        CapturedPacket {
            time_ns: u64::from(host) * 1000,
            bytes,
            original_len_bytes,
            port: 1,
            ..CapturedPacket::default()
        }
    };
    (0..HOSTS).map(packet).collect()
}

fn loaded(path: &Path) -> Result<Loaded, Refusal> {
    let file = FunctionFile { path: path.to_owned(), ..FunctionFile::default() };
    Loaded::open(&file).map_err(|e| Refusal::Input(with_causes(&e)))
}

fn new(path: &Path, engine: EngineName, workers: usize, cores: usize) -> Result<New, Refusal> {
    let loaded = loaded(path)?;
    let options = EngineOptions { counters: true, ..EngineOptions::default() };
    let load = |_| -> Result<Box<dyn InPlaceEngine>, SessionError> {
        match cores {
            1 => Ok(engine.load_in_place(&loaded, &options)?.engine),
            cores => Ok(Box::new(engine.load_on_cores(&loaded, &options, cores, CoresOptions::live())?.0)),
        }
    };
    let engines: Result<Vec<_>, _> = (0..workers).map(load).collect();
    let engines = engines.map_err(|e| Refusal::Finding(with_causes(&e)))?;
    let maps = loaded.layouts().into_iter().map(|(name, layout)| flowloom_exec::MapDescription {
        name,
        layout: Some(layout),
        ..Default::default()
    });
    let facts = Facts {
        name: loaded.name().to_owned(),
        path: path.display().to_string(),
        params: Vec::new(),
        program: None,
        function: loaded.function().cloned(),
        description: Description::new(loaded.name(), "", maps.collect()),
    };
    Ok(New { facts, loaded, engines, sweep: SweepClock::new(0), notes: Vec::new() })
}

/// A run with some workers.
struct Run {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Statistics>>,
    subject: Arc<UserRun>,
}

impl Run {
    fn start(path: &Path, engine: EngineName, reloaded: EngineName, workers: usize, cores: usize) -> Run {
        let New { facts, engines, .. } = new(path, engine, workers, cores).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (mut desks, mut threads) = (Vec::new(), Vec::new());
        for engine in engines {
            let (own, inbox) = desk().unwrap();
            desks.push(own);
            let stop = Arc::clone(&stop);
            threads.push(std::thread::spawn(move || {
                let source = CaptureSource::read(&mut packets().into_iter().map(Ok), u64::MAX / 2).unwrap();
                let mut devices: Vec<Box<dyn Device>> = vec![Box::new(source), Box::new(CaptureSink::new(None))];
                let watched = RefCell::new(Watched::new(engine, 1));
                let mut last_ns = 0;
                let mut visit = |statistics: &Statistics, sweep: &mut SweepClock| {
                    last_ns = statistics.times_ns.map_or(last_ns, |(_, last)| last);
                    let watched = &mut *watched.borrow_mut();
                    inbox.work(&mut Worker { statistics, watched, sweep, now_ns: last_ns, replaced: &mut |_, _| () });
                };
                let visits = Some(Visits { wanted: inbox.wanted(), wakes: inbox.wakes(), visit: &mut visit });
                let hooks = Hooks { visits, ..Hooks::default() };
                let mut shared = Shared::new(&watched);
                run_loop(&mut devices, &mut shared, None, &LoopOptions::default(), &stop, hooks).unwrap()
            }));
        }
        let load: LoadFunction = Box::new(move |path, _, _, workers| new(Path::new(path), reloaded, workers, cores));
        let ports = BTreeMap::from([(1, "in".to_owned())]);
        let subject = Arc::new(UserRun::new(desks, facts, ("memory", engine.as_str()), ports, load));
        Run { stop, threads, subject }
    }

    fn end(self) -> Vec<Statistics> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }
}

fn count(value: &[u8], layout: &flowloom_exec::MapDescription) -> u64 {
    let fields = &layout.layout.as_ref().unwrap().fields;
    let field = fields.iter().find(|field| field.name == "packets" || field.name == "octets").unwrap();
    u64::from_le_bytes(value[field.offset_bytes as usize..][..8].try_into().unwrap())
}

/// The first report that is as wanted. A run that goes on has one soon; the limit only ends a test that has failed.
fn report_when(client: &mut Client, is_wanted: impl Fn(&Report) -> bool) -> Report {
    let start = Instant::now();
    loop {
        let report = client.statistics().unwrap();
        if is_wanted(&report) {
            return report;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{report:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One test, since a process has one socket in a directory.
#[test]
fn clients_observe_and_change_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = folder.path().join("run");
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (counts, drops, wider) = (put("count.efsm", COUNT), put("drops.efsm", DROPS), put("wider.efsm", WIDER));
    let wrong = put("wrong.efsm", "function wrong;\nstateless all { always { fly; } }\n");
    for (engine, reloaded, workers, cores) in [
        (EngineName::JIT, EngineName::JIT, 1, 1),
        (EngineName::INTERP, EngineName::JIT, 2, 1),
        (EngineName::JIT, EngineName::JIT, 2, 1),
        (EngineName::JIT, EngineName::JIT, 1, 2),
        (EngineName::INTERP, EngineName::JIT, 1, 3),
    ] {
        let run = Run::start(&counts, engine, reloaded, workers, cores);
        let server = Server::start_in(&runtime, Arc::clone(&run.subject) as Arc<dyn Subject>).unwrap();
        let mut client = Client::connect(server.path()).unwrap();
        assert_eq!((client.greeting().function.as_str(), client.greeting().mode.as_str()), ("count", "memory"));

        // Counters agree with each other at every moment.
        let report = report_when(&mut client, |report| report.packets.unwrap() >= 2000);
        let packets = report.packets.unwrap();
        assert_eq!(report.verdicts["REDIRECT"], packets, "{report:?}");
        assert_eq!(report.ports[0].received, packets, "{report:?}");
        assert_eq!(report.rows.iter().find(|row| row.event == "row").unwrap().hits, packets, "{report:?}");
        let hosts = report.maps.iter().find(|map| map.name == "hosts").unwrap();
        // With several cores too, it is that of the function.
        assert_eq!((hosts.entries, hosts.max_entries), (u64::from(HOSTS) * workers as u64, 4096 * workers as u64));
        assert_eq!(report.workers as usize, workers * cores);
        let service = report.service.as_ref().unwrap();
        assert!(service.packets > 0 && service.p50_ns <= service.max_ns && service.max_ns > 0, "{service:?}");
        let top = report.top.as_ref().unwrap();
        assert!(top.distinct <= u64::from(HOSTS) && top.flows[0].flow.starts_with("UDP 10.0.0."), "{top:?}");

        // Entries.
        let maps = client.maps().unwrap();
        let layout = maps.description.map("hosts").unwrap().clone();
        let mut dumped = Vec::new();
        client.dump("hosts", &mut |key, value| dumped.push((key, value))).unwrap();
        assert_eq!(dumped.len(), usize::from(HOSTS) * workers);
        let (key, value) = dumped[0].clone();
        let found = client.lookup("hosts", &key).unwrap().unwrap();
        assert!(count(&found, &layout) > 0 && found.len() == value.len());
        assert!(client.update("hosts", &key, &value, UpdateRule::Exist).unwrap());
        if workers == 1 {
            let other = [9; 4];
            assert!(!client.update("hosts", &other, &value, UpdateRule::Exist).unwrap());
            assert!(client.update("hosts", &other, &value, UpdateRule::NoExist).unwrap());
            assert!(!client.update("hosts", &other, &value, UpdateRule::NoExist).unwrap());
            assert_eq!(client.lookup("hosts", &other).unwrap(), Some(value.clone()));
            assert!(client.delete("hosts", &other).unwrap() && !client.delete("hosts", &other).unwrap());
        } else {
            let error = client.update("hosts", &[9; 4], &value, UpdateRule::Any).unwrap_err();
            assert!(error.to_string().contains("workers"), "{error}");
        }
        for (error, part) in [
            (client.lookup("none", &key).unwrap_err(), "`count` has no map `none`; it has `hosts`"),
            (client.lookup("hosts", &[1]).unwrap_err(), "key is 1 bytes, map `hosts` expects 4"),
            (client.update("hosts", &key, &[1], UpdateRule::Any).unwrap_err(), "value is 1 bytes"),
        ] {
            assert!(error.to_string().contains(part), "{error}");
        }

        // A program that is refused changes nothing.
        let before = client.statistics().unwrap();
        let reload =
            |client: &mut Client, path: &Path| client.reload(Some(path.display().to_string()), Vec::new(), None);
        assert!(matches!(reload(&mut client, &wrong), Err(ControlError::Refused(Refusal::Input(_)))));
        let after = client.statistics().unwrap();
        assert_eq!((after.verdicts["DROP"], before.reloads, after.reloads), (0, 0, 0));

        // The same layout keeps its entries, another begins anew.
        let before = count(&client.lookup("hosts", &key).unwrap().unwrap(), &layout);
        let result = reload(&mut client, &drops).unwrap();
        assert_eq!((result.function.as_str(), &result.emptied), ("drops", &vec![]), "{result:?}");
        assert_eq!(result.kept, [("hosts".to_owned(), u64::from(HOSTS) * workers as u64)]);
        let after = count(&client.lookup("hosts", &key).unwrap().unwrap(), &layout);
        assert!(after >= before, "{before} packets before the reload, {after} after it");
        let report = report_when(&mut client, |report| report.verdicts["DROP"] > 0);
        assert_eq!((report.function.as_str(), report.reloads, report.engine.as_str()), ("drops", 1, reloaded.as_str()));
        let result = reload(&mut client, &wider).unwrap();
        let reason = "the fields of its values differ: `octets`".to_owned();
        assert_eq!((&result.kept, &result.emptied), (&vec![], &vec![("hosts".to_owned(), reason)]));

        crowd(server.path());

        if workers == 1 {
            // Rows without hits are not listed.
            report_when(&mut client, |report| !report.rows.is_empty());
            scrape(&run);
        }
        drop(server);
        let statistics = run.end();
        for worker in statistics {
            let ports: u64 = worker.ports.iter().map(|port| port.received).sum();
            assert_eq!((ports, worker.verdicts.iter().sum::<u64>()), (worker.packets, worker.packets));
        }
        assert!(matches!(client.statistics(), Err(ControlError::Refused(Refusal::Environment(_)))));
    }
    stale(&runtime);
}

/// Text that is no request is answered, and too many clients are told so.
fn crowd(path: &Path) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(b"\xff\n").unwrap();
    let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
    assert!(lines.nth(1).is_some_and(|line| line.contains("not a request of this protocol")));
    let others: Vec<UnixStream> = (0..64).map(|_| UnixStream::connect(path).unwrap()).collect();
    let refused = Client::connect(path).unwrap_err().to_string();
    assert!(refused.contains("64 clients are connected"), "{refused}");
    drop(others);
    // Their threads end in their own time.
    let start = Instant::now();
    while let Err(error) = Client::connect(path) {
        assert!(start.elapsed() < Duration::from_secs(60), "{error}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A task whose client has timed out does not run.
#[test]
fn abandoned_tasks_are_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("count.efsm");
    std::fs::write(&path, COUNT).unwrap();
    let mut engines = new(&path, EngineName::INTERP, 1, 1).unwrap().engines;
    let mut watched = Watched::new(engines.remove(0), 1);
    let (desk, inbox) = desk().unwrap();
    let is_run = Arc::new(AtomicBool::new(false));
    let task = Arc::clone(&is_run);
    let refused = desk.ask_within(Duration::from_millis(1), move |_| task.store(true, Ordering::SeqCst));
    assert!(matches!(refused, Err(Refusal::Environment(_))), "{refused:?}");
    assert!(inbox.wanted().load(Ordering::SeqCst));
    let mut work = || {
        inbox.work(&mut Worker {
            statistics: &Statistics::default(),
            watched: &mut watched,
            sweep: &mut SweepClock::new(0),
            now_ns: 0,
            replaced: &mut |_, _| (),
        });
    };
    work();
    assert!(!is_run.load(Ordering::SeqCst));
    let client = std::thread::spawn(move || desk.ask(|worker| worker.now_ns));
    while !client.is_finished() {
        work();
        std::thread::yield_now();
    }
    assert_eq!(client.join().unwrap(), Ok(0));
}

/// Between several cores and one a table keeps its entries: it has the function's capacity, which the cores need not
/// divide. What a core's share has no room for is left out, and nothing else.
#[test]
fn tables_are_kept_between_several_cores_and_one() {
    const ALL: u16 = 1000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("count.efsm");
    std::fs::write(&path, COUNT.replace("4096", "1000")).unwrap();
    let New { facts, mut engines, .. } = new(&path, EngineName::JIT, 1, 1).unwrap();
    let mut engine = engines.remove(0);
    let tables = engine.tables();
    let hosts = tables.defs().iter().position(|def| def.name == "hosts").unwrap();
    let value = vec![0; tables.defs()[hosts].value_bytes as usize];
    for host in 0..ALL {
        tables.update(hosts, &[[10, 0], host.to_be_bytes()].concat(), &value, 0).unwrap();
    }
    let mut watched = Watched::new(engine, 1);
    let (desk, inbox) = desk().unwrap();
    let cores = Arc::new(AtomicUsize::new(1));
    let wanted = Arc::clone(&cores);
    let load: LoadFunction =
        Box::new(move |path, _, _, _| new(Path::new(path), EngineName::JIT, 1, wanted.load(Ordering::SeqCst)));
    let subject = Arc::new(UserRun::new(vec![desk], facts, ("memory", "jit"), BTreeMap::new(), load));
    let mut kept = u64::from(ALL);
    for (count, shares) in [(3, 334), (1, 1000), (3, 334)] {
        cores.store(count, Ordering::SeqCst);
        let own = Arc::clone(&subject);
        let client = std::thread::spawn(move || own.reload(None, Vec::new(), None));
        while !client.is_finished() {
            inbox.work(&mut Worker {
                statistics: &Statistics::default(),
                watched: &mut watched,
                sweep: &mut SweepClock::new(0),
                now_ns: 0,
                replaced: &mut |_, _| (),
            });
            std::thread::yield_now();
        }
        let result = client.join().unwrap().unwrap();
        assert!(result.emptied.is_empty(), "{count} cores: {result:?}");
        let left_out = result.left_out.first().map_or(0, |left_out| left_out.entries);
        assert_eq!(result.kept, [("hosts".to_owned(), kept - left_out)], "{count} cores");
        // A hash does not spread a full table evenly; a second time everything has its place.
        assert_eq!(left_out > 0, kept == u64::from(ALL), "{count} cores: {result:?}");
        if let Some(LeftOut { map, of, reason, .. }) = result.left_out.first() {
            assert_eq!((map.as_str(), *of), ("hosts", kept));
            assert!(left_out < 100 && reason.contains(&format!("is {shares}")), "{result:?}");
        }
        kept -= left_out;
        let engine = watched.engine();
        assert_eq!(engine.tables().defs()[hosts].max_entries, 1000);
        assert_eq!(engine.program().maps[hosts].max_entries, shares);
    }
}

/// Metrics have the text format of Prometheus.
fn scrape(run: &Run) {
    let metrics = MetricsServer::start("127.0.0.1:0".parse().unwrap(), Arc::clone(&run.subject) as Arc<dyn Subject>);
    let address = metrics.unwrap().address();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    };
    assert!(get("/").0.starts_with("HTTP/1.1 404"));
    odd_clients(address);
    let (head, body) = get("/metrics");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
    // [Prometheus exposition formats]: HELP and TYPE once before the samples of a family, all of them together.
    let mut families: BTreeMap<String, String> = BTreeMap::new();
    let mut current = String::new();
    let mut buckets = Vec::new();
    let mut samples = BTreeMap::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(families.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} is twice");
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            assert!(rest.split_once(' ').is_some_and(|(_, help)| help.len() > 10), "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            let bare = name.split('{').next().unwrap();
            let belongs = bare == current || families[&current] == "histogram" && bare.starts_with(&current);
            assert!(belongs && bare.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line} in {current}");
            assert_eq!(name.contains('{'), name.ends_with('}'), "{line}");
            if bare.ends_with("_bucket") {
                buckets.push(value);
            }
            assert!(samples.insert(name.to_owned(), value).is_none(), "{name} is twice");
        }
    }
    assert!(samples["flowloom_packets_total{verdict=\"drop\"}"] > 0.0, "{body}");
    assert_eq!(samples["flowloom_not_run_packets_total"], 0.0, "{body}");
    assert!(samples.contains_key("flowloom_map_entries{map=\"hosts\",kind=\"hash\"}"), "{body}");
    assert!(
        samples.keys().any(|name| name.starts_with("flowloom_row_hits_total{element=\"hosts\",line=\"7\"")),
        "{body}"
    );
    assert!(buckets.len() > 10 && buckets.is_sorted(), "{buckets:?}");
    assert_eq!(buckets.last().copied(), Some(samples["flowloom_service_seconds_count"]));
}

/// Idle clients and requests without the body that they announce do not block other clients.
fn odd_clients(address: SocketAddr) {
    let idle = TcpStream::connect(address).unwrap();
    for (request, status) in [
        ("GET /metrics HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n", "200"),
        ("POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "405"),
        ("HEAD /metrics HTTP/1.1\r\n\r\n", "200"),
        ("metrics\r\n\r\n", "400"),
        (&format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(9000)), "431"),
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {text}");
        assert_eq!(text.ends_with("\r\n\r\n"), request.starts_with("HEAD"), "{request}: {text}");
    }
    drop(idle);
}

/// The socket of a process that was killed is told apart, and others may not enter the directory.
fn stale(runtime: &Path) {
    let path = runtime.join("4711.sock");
    drop(UnixListener::bind(&path).unwrap());
    // One that greets in another version, and one that is stopped, hide no others.
    let other = runtime.join("4712.sock");
    let listener = UnixListener::bind(&other).unwrap();
    let greets = std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"{\"flowloom\":2}\n").unwrap());
    let stopped = runtime.join("4713.sock");
    let silent = UnixListener::bind(&stopped).unwrap();
    let runs_found = flowloom_control::runs_in(runtime).unwrap();
    assert!(runs_found.found.is_empty() && runs_found.stale == [path], "{runs_found:?}");
    let mut odd: Vec<String> = runs_found.odd.iter().map(ToString::to_string).collect();
    odd.sort();
    assert!(odd.len() == 2 && odd[0].contains("4712.sock` gave an unexpected answer"), "{odd:?}");
    assert!(odd[1].contains("4713.sock` could not be read: its process is stopped"), "{odd:?}");
    greets.join().unwrap();
    drop(silent);
    std::fs::remove_file(other).unwrap();
    std::fs::remove_file(stopped).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(runtime, mode).unwrap();
    let run = Run { stop: Arc::default(), threads: Vec::new(), subject: empty() };
    let error = Server::start_in(runtime, Arc::clone(&run.subject) as Arc<dyn Subject>).unwrap_err();
    assert!(error.to_string().contains("others may enter it"), "{error}");
    assert!(runs().is_ok());
    run.end();
}

fn empty() -> Arc<UserRun> {
    let facts = Facts {
        name: String::new(),
        path: String::new(),
        params: Vec::new(),
        program: None,
        function: None,
        description: Description::default(),
    };
    let load: LoadFunction = Box::new(|_, _, _, _| Err(Refusal::Input(String::new())));
    Arc::new(UserRun::new(Vec::new(), facts, ("", ""), BTreeMap::new(), load))
}
