// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver of the machine: functions are loaded, contexts are accessed, through the registers of [`crate::registers`].

use crate::encode::{ConfigWrite, globals_of};
use crate::model::KeyedContexts;
use crate::parameters::Parameters;
use crate::registers::{self as map, MACHINE, Register};
use crate::rtl::table_rows;
use crate::stored::StoredContext;

/// Access to 32-bit registers by byte address.
pub trait Bus {
    /// A failed access.
    type Error;

    /// Reads a register.
    ///
    /// # Errors
    /// The access failed, or was answered with an error.
    fn read(&mut self, address: u32) -> Result<u32, Self::Error>;

    /// Writes registers in order: addresses and values.
    ///
    /// # Errors
    /// An access failed, or was answered with an error.
    fn write(&mut self, writes: &[(u32, u32)]) -> Result<(), Self::Error>;

    /// Lets time pass while the driver waits, after a number of reads: a hint for simulations, in which none does by
    /// itself.
    ///
    /// # Errors
    /// The simulation has ended.
    fn pass_time(&mut self, _reads: u32) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// A failure of the driver.
#[derive(Debug, thiserror::Error)]
pub enum DriverError<E> {
    /// An access to a register failed.
    #[error(transparent)]
    Bus(E),
    /// The machine has another size than expected.
    #[error("the machine has {found} {name}, expected {expected} (parameters `{parameters}`)")]
    Size {
        /// What is counted.
        name: &'static str,
        /// The size that the machine reads.
        found: u32,
        /// The size of the parameters.
        expected: u32,
        /// The name of the parameters.
        parameters: &'static str,
    },
    /// A transaction is busy, or packets or contexts do not leave, after many reads.
    #[error("{what} after {reads} reads of `{register}`")]
    Stuck {
        /// What lasts.
        what: &'static str,
        /// The register that was read.
        register: &'static str,
        /// How often.
        reads: u32,
    },
    /// A transaction failed.
    #[error("the transaction failed with error {error} of Linux")]
    Transaction {
        /// The error.
        error: u32,
    },
}

/// Reads of a status until a transaction counts as stuck.
const MAX_READS: u32 = 1 << 20;

const NO_ENTRY: u32 = map::ERRORS[0].1;
const FULL: u32 = map::ERRORS[1].1;

/// A machine behind a bus.
#[derive(Debug)]
pub struct Driver<B> {
    bus: B,
    parameters: Parameters,
    rows: u32,
}

impl<B: Bus> Driver<B> {
    /// A machine that is synthesised with these parameters.
    ///
    /// # Errors
    /// It has others, or an access failed.
    pub fn open(bus: B, parameters: &Parameters) -> Result<Driver<B>, DriverError<B::Error>> {
        let rows = table_rows(parameters);
        let mut driver = Driver { bus, parameters: parameters.clone(), rows };
        let expected = [
            parameters.elements,
            parameters.words,
            parameters.registers,
            parameters.globals,
            parameters.conditions,
            parameters.alus,
            parameters.writes,
            parameters.match_words,
            parameters.rows,
            parameters.key_bits / 32,
            rows,
            parameters.queues,
            parameters.queue_depth,
        ];
        for (at, (expected, name)) in expected.into_iter().zip(map::SIZE_NAMES).enumerate() {
            let found = driver.read_at(&map::SIZES, at)?;
            if found != expected {
                return Err(DriverError::Size { name, found, expected, parameters: parameters.name });
            }
        }
        Ok(driver)
    }

    /// The bus.
    pub fn bus(&mut self) -> &mut B {
        &mut self.bus
    }

    fn read(&mut self, register: &Register) -> Result<u32, DriverError<B::Error>> {
        self.read_at(register, 0)
    }

    fn read_at(&mut self, register: &Register, at: usize) -> Result<u32, DriverError<B::Error>> {
        self.bus.read(address(register, at)).map_err(DriverError::Bus)
    }

    fn write(&mut self, writes: &[(&Register, u32)]) -> Result<(), DriverError<B::Error>> {
        let writes: Vec<(u32, u32)> = writes.iter().map(|(register, value)| (address(register, 0), *value)).collect();
        self.bus.write(&writes).map_err(DriverError::Bus)
    }

    /// Writes the configuration of a bank. No packet may use it; [`Driver::wait_for_packets`].
    ///
    /// # Errors
    /// An access failed.
    pub fn load(&mut self, bank: u8, writes: &[ConfigWrite]) -> Result<(), DriverError<B::Error>> {
        let mut all = vec![(address(&map::BANK, 0), bank.into())];
        let mut next = None;
        for &ConfigWrite { unit, index, data } in writes {
            let place = u32::from(unit) << 16 | u32::from(index);
            if next != Some(place) {
                all.push((address(&map::ADDRESS, 0), place));
            }
            all.push((address(&map::DATA, 0), data));
            // The address that the write leaves: the index wraps.
            next = Some(u32::from(unit) << 16 | u32::from(index.wrapping_add(1)));
        }
        self.bus.write(&all).map_err(DriverError::Bus)
    }

    /// Switches packets that start from now on to a bank.
    ///
    /// # Errors
    /// An access failed.
    pub fn activate(&mut self, bank: u8) -> Result<(), DriverError<B::Error>> {
        self.write(&[(&map::ACTIVE, bank.into())])
    }

    /// Waits until no packet in the machine uses a bank.
    ///
    /// # Errors
    /// Packets do not leave, or an access failed.
    pub fn wait_for_packets(&mut self, bank: u8) -> Result<(), DriverError<B::Error>> {
        let register = if bank == 0 { &map::PACKETS_0 } else { &map::PACKETS_1 };
        self.wait(register, "packets are still in the machine", |packets| packets == 0).map(drop)
    }

    fn wait(
        &mut self,
        register: &Register,
        what: &'static str,
        is_done: impl Fn(u32) -> bool,
    ) -> Result<u32, DriverError<B::Error>> {
        for reads in 1..=MAX_READS {
            let value = self.read(register)?;
            if is_done(value) {
                return Ok(value);
            }
            self.bus.pass_time(reads).map_err(DriverError::Bus)?;
        }
        Err(DriverError::Stuck { what, register: register.name, reads: MAX_READS })
    }

    /// Sets the bound egress ports, by number.
    ///
    /// # Errors
    /// An access failed.
    pub fn bind_ports(&mut self, is_bound: impl Fn(u32) -> bool) -> Result<(), DriverError<B::Error>> {
        let word = |at: u32| (0..32).fold(0, |word, bit| word | u32::from(is_bound(32 * at + bit)) << bit);
        let writes: Vec<(u32, u32)> = (0..8).map(|at| (address(&map::PORTS, at as usize), word(at))).collect();
        self.bus.write(&writes).map_err(DriverError::Bus)
    }

    /// Sets the time of sweeps and transactions while no packet is in the machine.
    ///
    /// # Errors
    /// An access failed.
    pub fn set_time(&mut self, now_ns: u64) -> Result<(), DriverError<B::Error>> {
        self.write(&[(&map::NOW_LOW, now_ns as u32), (&map::NOW_HIGH, (now_ns >> 32) as u32)])
    }

    /// The number of contexts of a stage.
    ///
    /// # Errors
    /// An access failed.
    pub fn stored(&mut self, stage: u8, bank: u8) -> Result<u32, DriverError<B::Error>> {
        self.write(&[(&map::STAGE, stage.into()), (&map::BANK, bank.into())])?;
        self.read(&map::STORED)
    }

    /// The global registers of a stage.
    ///
    /// # Errors
    /// An access failed.
    pub fn globals(&mut self, stage: u8, bank: u8) -> Result<Vec<u32>, DriverError<B::Error>> {
        self.write(&[(&map::STAGE, stage.into()), (&map::BANK, bank.into())])?;
        (0..self.parameters.globals as usize).map(|at| self.read_at(&map::GLOBALS, at)).collect()
    }

    /// Sets the global registers of a stage. No packet may be in it.
    ///
    /// # Errors
    /// An access failed.
    pub fn set_globals(&mut self, stage: u8, bank: u8, globals: &[u32]) -> Result<(), DriverError<B::Error>> {
        self.load(bank, &globals_of(stage, globals))
    }

    /// Starts a transaction and waits for its error, 0 for none.
    fn transact(&mut self, operation: u32) -> Result<u32, DriverError<B::Error>> {
        self.write(&[(&map::COMMAND, operation)])?;
        let status = self.wait(&map::STATUS, "the transaction is busy", |status| status & 1 == 0)?;
        Ok(status >> 8 & 0xff)
    }

    fn select(&mut self, stage: u8, bank: u8, key: &[u32]) -> Result<(), DriverError<B::Error>> {
        let writes = writes_of_key(&self.parameters, stage, bank, key);
        self.bus.write(&writes).map_err(DriverError::Bus)
    }

    fn context(&mut self) -> Result<StoredContext, DriverError<B::Error>> {
        let count = self.parameters.registers as usize + 5;
        let words = (0..count).map(|at| self.read_at(&map::CONTEXT, at)).collect::<Result<Vec<u32>, _>>()?;
        StoredContext::of_words(&words).ok_or(DriverError::Transaction { error: NO_ENTRY })
    }

    /// The context of a key.
    ///
    /// # Errors
    /// An access failed.
    pub fn lookup(&mut self, stage: u8, bank: u8, key: &[u32]) -> Result<Option<StoredContext>, DriverError<B::Error>> {
        self.select(stage, bank, key)?;
        match self.transact(map::LOOKUP)? {
            0 => self.context().map(Some),
            NO_ENTRY => Ok(None),
            error => Err(DriverError::Transaction { error }),
        }
    }

    /// Sets the context of a key; false if the table is full.
    ///
    /// # Errors
    /// An access failed.
    pub fn update(
        &mut self,
        stage: u8,
        bank: u8,
        key: &[u32],
        context: &StoredContext,
    ) -> Result<bool, DriverError<B::Error>> {
        self.select(stage, bank, key)?;
        self.bus.write(&writes_of_context(context)).map_err(DriverError::Bus)?;
        match self.transact(map::UPDATE)? {
            0 => Ok(true),
            FULL => Ok(false),
            error => Err(DriverError::Transaction { error }),
        }
    }

    /// Removes the context of a key; false if there is none.
    ///
    /// # Errors
    /// An access failed.
    pub fn delete(&mut self, stage: u8, bank: u8, key: &[u32]) -> Result<bool, DriverError<B::Error>> {
        self.select(stage, bank, key)?;
        match self.transact(map::DELETE)? {
            0 => Ok(true),
            NO_ENTRY => Ok(false),
            error => Err(DriverError::Transaction { error }),
        }
    }

    /// All contexts of a stage with their keys. Contexts do not change their places meanwhile, so that each is listed once;
    /// packets that create contexts wait if that takes longer than the stash has room.
    ///
    /// # Errors
    /// An access failed.
    pub fn contexts(&mut self, stage: u8, bank: u8) -> Result<KeyedContexts, DriverError<B::Error>> {
        let sweep = self.read(&map::SWEEP)?;
        self.write(&[
            (&map::SWEEP, sweep | 1 << 3),
            (&map::STAGE, stage.into()),
            (&map::BANK, bank.into()),
            (&map::CURSOR, 0),
        ])?;
        let mut found = KeyedContexts::new();
        let key_words = self.parameters.key_bits as usize / 32;
        let error = loop {
            match self.transact(map::NEXT)? {
                0 => {
                    let key = (0..key_words).map(|at| self.read_at(&map::KEY, at)).collect::<Result<Vec<u32>, _>>()?;
                    found.insert(key, self.context()?);
                }
                error => break error,
            }
        };
        self.write(&[(&map::SWEEP, sweep)])?;
        match error {
            NO_ENTRY => Ok(found),
            error => Err(DriverError::Transaction { error }),
        }
    }

    /// Sweeps all tables once: contexts whose deadline is at or before `now_ns` are removed, if no packet is in the machine.
    ///
    /// # Errors
    /// The sweep does not advance, or an access failed.
    pub fn sweep(&mut self, now_ns: u64) -> Result<(), DriverError<B::Error>> {
        self.set_time(now_ns)?;
        self.write(&[(&map::SWEEP, 1)])?;
        let stages: Vec<u32> = (0..self.parameters.elements).map(|element| 2 * element + 1).collect();
        let mut firsts = Vec::new();
        for stage in &stages {
            self.write(&[(&map::STAGE, *stage)])?;
            firsts.push(self.read(&map::SWEPT)?);
        }
        // All places after the one that may be under way.
        let places = self.rows + crate::parameters::STASH + 1;
        for (stage, first) in stages.into_iter().zip(firsts) {
            self.write(&[(&map::STAGE, stage)])?;
            self.wait(&map::SWEPT, "the sweep does not end", |swept| swept.wrapping_sub(first) > places)?;
        }
        self.write(&[(&map::SWEEP, 0)])
    }

    /// Removes all contexts of a bank, which no packet may use.
    ///
    /// # Errors
    /// Contexts do not leave, or an access failed.
    pub fn clear(&mut self, bank: u8) -> Result<(), DriverError<B::Error>> {
        self.write(&[(&map::BANK, bank.into()), (&map::SWEEP, 1 << 1 | u32::from(bank) << 2)])?;
        for stage in (0..self.parameters.elements).map(|element| 2 * element + 1) {
            self.write(&[(&map::STAGE, stage)])?;
            self.wait(&map::STORED, "contexts are still stored", |stored| stored == 0)?;
        }
        self.write(&[(&map::SWEEP, 0)])
    }
}

/// The address of a register of the machine; `at` is its number in an array.
pub fn address(register: &Register, at: usize) -> u32 {
    MACHINE + register.offset + 4 * at as u32
}

/// The writes before a transaction on a key.
pub fn writes_of_key(parameters: &Parameters, stage: u8, bank: u8, key: &[u32]) -> Vec<(u32, u32)> {
    let mut writes = vec![(address(&map::STAGE, 0), stage.into()), (address(&map::BANK, 0), bank.into())];
    let words = parameters.key_bits as usize / 32;
    writes.extend((0..words).map(|at| (address(&map::KEY, at), key.get(at).copied().unwrap_or(0))));
    writes
}

/// The writes of a context before it is updated.
pub fn writes_of_context(context: &StoredContext) -> Vec<(u32, u32)> {
    context.to_words().into_iter().enumerate().map(|(at, word)| (address(&map::CONTEXT, at), word)).collect()
}
