// SPDX-License-Identifier: Apache-2.0 OR MIT
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    flowloom_fuzz::verifier(bytes);
});
