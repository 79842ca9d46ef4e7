// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Route lookups.

use super::Run;
use crate::fault::Fault;
use crate::fib::Request;
use crate::space::Space;

/// The size of `struct bpf_fib_lookup` in bytes.
const PARAMS_BYTES: usize = 64;
const ETHERNET_BYTES: i32 = 14;
/// -EINVAL
const INVALID: i64 = -22;
/// -ENODEV
const NO_DEVICE: i64 = -19;

impl<S: Space> Run<'_, S> {
    /// As `bpf_xdp_fib_lookup`, on the user's table; without one there are no interfaces.
    pub(super) fn fib_lookup(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("fib_lookup", args[0])?;
        let len = super::length("fib_lookup", 3, args[2])?;
        let params = self.memory.read(args[1], len)?;
        let Some(params) = params.first_chunk::<PARAMS_BYTES>().copied() else { return Ok(INVALID as u64) };
        let mut request = match Request::parse(&params, args[3] as u32) {
            Ok(request) => request,
            Err(error) => return Ok(error as u64),
        };
        let answer = match self.routes {
            Some(table) => table.lookup(&mut request),
            None => NO_DEVICE,
        };
        let changed = request.emit(params);
        self.memory.write_any(args[1], PARAMS_BYTES)?.copy_from_slice(&changed);
        Ok(answer as u64)
    }

    /// As `bpf_xdp_check_mtu`.
    pub(super) fn check_mtu(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        self.context("check_mtu", args[0])?;
        let [_, interface, mtu_address, difference, flags] = args;
        let given = self.memory.read(mtu_address, 4)?.first_chunk().copied().map_or(0, u32::from_le_bytes);
        // XDP supports no flags.
        if flags != 0 {
            return Ok(INVALID as u64);
        }
        let index = if interface as u32 == 0 { self.memory.ingress() } else { interface as u32 };
        let Some(mtu) = self.routes.and_then(|table| table.mtu(index)) else { return Ok(NO_DEVICE as u64) };
        // The kernel computes in `int`.
        let header = ETHERNET_BYTES;
        let len = if given == 0 { self.memory.packet().len() as i32 } else { (given as i32).wrapping_add(header) };
        let too_long = len.wrapping_add(difference as i32) > (mtu as i32).wrapping_add(header);
        self.memory.write_any(mtu_address, 4)?.copy_from_slice(&mtu.to_le_bytes());
        Ok(u64::from(too_long))
    }
}
