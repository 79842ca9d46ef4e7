// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions that machine code calls.
//!
//! Each takes addresses that the engine has put into the state or the code: all of them belong to the engine that runs.

use flowloom_engine::Port;
use flowloom_flowtable::FlowTable;
use flowloom_isa::limits::{LOCK_BYTES, MAX_LOOP_ITERATIONS, MAX_TAIL_CALLS};
use flowloom_vm::{Fault, Helper, Map, Redirect, Run, Space, map_at};

use crate::compiled::Function;
use crate::space::Native;
use crate::state::{BY_HELPER, State};

/// The iterations of loops without a small bound for one packet, those of callbacks included.
pub(crate) const ITERATIONS: i64 = 1 << 26;
/// The flag of an update: only if the key is new.
const NOEXIST: u64 = 1;
/// The flag of an update: only if the key exists.
const EXIST: u64 = 2;
/// -ENOENT
const NO_ENTRY: u64 = -2i64 as u64;
/// -EEXIST
const EXISTS: u64 = -17i64 as u64;
/// -EINVAL
const INVALID: u64 = -22i64 as u64;
/// -E2BIG
const TOO_BIG: i32 = -7;

/// A function of the runtime: its index in [`FUNCTIONS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runtime {
    Helper,
    TailTarget,
    Repeat,
    ForEach,
    Use,
    Exhausted,
    Hash,
    Redirect,
    Update,
    Delete,
}

/// A function as machine code sees it: all parameters, and the result, are 64-bit numbers.
#[derive(Clone, Copy)]
pub(crate) struct Callee {
    pub(crate) name: &'static str,
    pub(crate) parameters: usize,
    pub(crate) address: fn() -> *const u8,
}

/// By [`Runtime`].
pub(crate) const FUNCTIONS: [Callee; 10] = [
    Callee { name: "fl_helper", parameters: 7, address: || call_helper as *const u8 },
    Callee { name: "fl_tail_target", parameters: 4, address: || tail_target as *const u8 },
    Callee { name: "fl_repeat", parameters: 6, address: || repeat as *const u8 },
    Callee { name: "fl_for_each", parameters: 5, address: || for_each as *const u8 },
    Callee { name: "fl_use", parameters: 2, address: || look_up_and_use as *const u8 },
    Callee { name: "fl_exhausted", parameters: 1, address: || exhausted as *const u8 },
    Callee { name: "fl_hash", parameters: 2, address: || hash as *const u8 },
    Callee { name: "fl_redirect", parameters: 7, address: || redirect as *const u8 },
    Callee { name: "fl_update", parameters: 7, address: || update as *const u8 },
    Callee { name: "fl_delete", parameters: 2, address: || delete as *const u8 },
];

/// The environment of a run, behind [`State::run`].
pub(crate) struct Running<'a, 'r> {
    pub(crate) run: &'a mut Run<'r, Native>,
    /// By program, the entry of its code.
    pub(crate) programs: &'a [Option<Function>],
}

/// The environment of the run.
///
/// # Safety
/// A run is on its way, and nothing else refers to its environment.
unsafe fn running<'a>(state: *mut State) -> &'a mut Running<'a, 'a> {
    // SAFETY: as the caller promises; the engine has set the field before it called the code.
    unsafe { &mut *(*state).run.cast() }
}

/// Calls a helper.
unsafe extern "C" fn call_helper(
    state: *mut State,
    helper: *const Helper<Native>,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
) -> u64 {
    // SAFETY: machine code calls helpers during a run, one at a time; the table of helpers lives as long as the code.
    let (running, helper) = unsafe { (running(state), &*helper) };
    // SAFETY: the state is that of the engine.
    running.run.choices.now_ns = unsafe { (*state).now_ns };
    match helper.call(running.run, [a, b, c, d, e]) {
        Ok(result) => result,
        Err(fault) => {
            running.run.memory.fail(fault);
            0
        }
    }
}

/// Calls `redirect` or `redirect_map`, whose target replaces that of earlier calls, those without a helper included.
unsafe extern "C" fn redirect(
    state: *mut State,
    helper: *const Helper<Native>,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
) -> u64 {
    // SAFETY: as in `call_helper`; the state is that of the engine.
    unsafe {
        // A helper that refuses its flags leaves the target of an earlier call.
        let run = &mut *running(state).run;
        run.redirect = last_redirect((*state).redirect, run.redirect);
        (*state).redirect = BY_HELPER;
        call_helper(state, helper, a, b, c, d, e)
    }
}

/// The last redirect of a run that has ended.
pub(crate) fn last_redirect(by_code: i64, by_helper: Option<Redirect>) -> Option<Redirect> {
    match by_code {
        BY_HELPER => by_helper,
        port => u32::try_from(port).ok().map(|port| Redirect::To(Port(port))),
    }
}

/// `map_update_elem(map, key, value, flags)` of a hash table without a value for each CPU and without evictions.
unsafe extern "C" fn update(
    state: *mut State,
    helper: *const Helper<Native>,
    map: u64,
    key: u64,
    value: u64,
    flags: u64,
    _: u64,
) -> u64 {
    // SAFETY: as in `call_helper`.
    let memory = unsafe { &mut *running(state).run.memory };
    let known = map_at(map).and_then(|map| memory.table(map));
    let Some((table, def)) = known.filter(|_| flags <= EXIST) else {
        // SAFETY: as in `call_helper`.
        return unsafe { call_helper(state, helper, map, key, value, flags, 0) };
    };
    // SAFETY: the proof has that the program may read the key.
    let key = unsafe { std::slice::from_raw_parts(key as *const u8, def.key_bytes as usize) };
    let probe = table.probe(key);
    if flags != 0 {
        let is_there = table.lookup(probe, key).is_some();
        if is_there && flags == NOEXIST {
            return EXISTS;
        }
        if !is_there && flags == EXIST {
            return NO_ENTRY;
        }
    }
    let Some(slot) = table.put(probe, key) else { return TOO_BIG as u64 };
    let to = table.value_address(slot);
    // SAFETY: the proof has that the program may read the value; it may be the value in the slot itself, of an entry
    // that was removed before. The lock is within the value.
    unsafe {
        std::ptr::copy(value as *const u8, to, def.value_bytes as usize);
        if let Some(lock) = def.spin_lock {
            to.add(lock as usize).write_bytes(0, LOCK_BYTES as usize);
        }
    }
    0
}

/// `map_delete_elem(map, key)` of a hash table.
unsafe extern "C" fn delete(table: *mut FlowTable, key: *const u8) -> u64 {
    // SAFETY: the table is that of a map of the engine, which nothing else refers to during the call; the proof has
    // that the key is readable.
    let (table, key) = unsafe { (&mut *table, std::slice::from_raw_parts(key, (*table).layout().key_bytes as usize)) };
    table.remove(table.probe(key), key).map_or(NO_ENTRY, |_| 0)
}

/// The code that a tail call with `r1` to `r3` leads to; 0 if there is none.
unsafe extern "C" fn tail_target(state: *mut State, _context: u64, map: u64, index: u64) -> u64 {
    // SAFETY: as in `call_helper`; the state is that of the engine.
    let (running, state) = unsafe { (running(state), &mut *state) };
    let map = map_at(map).and_then(|map| running.run.memory.maps().get(map));
    let member = map.and_then(|map| map.member(&(index as u32).to_le_bytes()));
    let code = member.and_then(|member| *running.programs.get(member as usize + 1)?);
    match code {
        Some(code) if state.tail_calls < MAX_TAIL_CALLS => {
            state.tail_calls += 1;
            code as usize as u64
        }
        _ => 0,
    }
}

/// Whether the run has failed or spent its iterations.
///
/// # Safety
/// As of [`running`].
unsafe fn is_over(state: *mut State) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        (*state).budget -= 1;
        if (*state).budget < 0 {
            exhausted(state);
        }
        running(state).run.memory.has_failed()
    }
}

/// `loop(count, callback, context, flags)`; `inlined` tells whether the kernel inlines the call, which then compares
/// all 64 bits of the count and returns errors as 32-bit numbers.
unsafe extern "C" fn repeat(
    state: *mut State,
    count: u64,
    callback: u64,
    context: u64,
    flags: u64,
    inlined: u64,
) -> u64 {
    let (count, too_big) = match inlined {
        0 => (u64::from(count as u32), TOO_BIG as u64),
        _ => (count, u64::from(TOO_BIG as u32)),
    };
    match (flags, count) {
        (0, ..=MAX_LOOP_ITERATIONS) => {}
        (0, _) => return too_big,
        _ => return INVALID,
    }
    // SAFETY: the proof has that the argument is a function of the program.
    let callback = unsafe { std::mem::transmute::<usize, Function>(callback as usize) };
    for number in 0..count {
        // SAFETY: a run is on its way.
        if unsafe { is_over(state) || callback(state, number, context, 0, 0, 0) != 0 } {
            return number + 1;
        }
    }
    count
}

/// `for_each_map_elem(map, callback, context, flags)`: entries of a hash table are visited by ascending key, as bytes.
unsafe extern "C" fn for_each(state: *mut State, map: u64, callback: u64, context: u64, flags: u64) -> u64 {
    // SAFETY: a run is on its way; the environment is borrowed anew after each callback.
    let memory = || unsafe { &mut *running(state).run.memory };
    let Some(index) = map_at(map).filter(|_| flags == 0) else { return INVALID };
    // SAFETY: the proof has that the argument is a function of the program.
    let callback = unsafe { std::mem::transmute::<usize, Function>(callback as usize) };
    let indices = memory().maps().get(index).and_then(Map::indices);
    let keys = if indices.is_some() { Vec::new() } else { memory().maps()[index].keys() };
    let count = indices.map_or(keys.len(), |count| count as usize);
    let mut begun = 0;
    for number in 0..count {
        let number_bytes = (number as u32).to_le_bytes();
        let key = keys.get(number).map_or(&number_bytes[..], Vec::as_slice);
        // SAFETY: as above.
        let cpu = unsafe { (*state).cpu };
        // A callback may have deleted it in the meantime.
        let Some(cell) = memory().maps_mut()[index].lookup(key, cpu) else { continue };
        let value = memory().value_address(index, cell);
        begun += 1;
        // SAFETY: the key lives until the callback returns.
        if unsafe { is_over(state) || callback(state, map, key.as_ptr() as u64, value, context, 0) != 0 } {
            break;
        }
    }
    begun
}

/// A lookup in an LRU table, which counts as a use.
unsafe extern "C" fn look_up_and_use(table: *mut FlowTable, key: *const u8) -> *mut u8 {
    // SAFETY: the table is that of a map of the engine, which nothing else refers to during the call; the proof has
    // that the key is readable.
    let (table, key) = unsafe { (&mut *table, std::slice::from_raw_parts(key, (*table).layout().key_bytes as usize)) };
    match table.lookup(table.probe(key), key) {
        Some(slot) => {
            table.touch(slot);
            table.value_mut(slot).as_mut_ptr()
        }
        None => std::ptr::null_mut(),
    }
}

/// Notes that the run has spent its iterations; gives the result of the function that stops.
unsafe extern "C" fn exhausted(state: *mut State) -> u64 {
    // SAFETY: a run is on its way.
    unsafe { running(state).run.memory.fail(Fault::Budget { limit: ITERATIONS as u64 }) };
    0
}

/// The hash of a key.
unsafe extern "C" fn hash(table: *const FlowTable, key: *const u8) -> u64 {
    // SAFETY: the table is that of a map of the engine; the proof has that the key is readable.
    unsafe { (*table).probe(std::slice::from_raw_parts(key, (*table).layout().key_bytes as usize)).hash() }
}
