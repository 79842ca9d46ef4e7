// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of applying CO-RE relocations.

use super::access::AccessFault;
use crate::error::ReadFault;
use flowloom_isa::btf::BtfError;

/// The budget of visited members for one object; no real one comes near.
pub(super) const MAX_WORK: u64 = 100_000_000;

/// Why a record is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AdaptFault {
    #[error(transparent)]
    Access(#[from] AccessFault),
    #[error(transparent)]
    Btf(#[from] BtfError),
    #[error("adaptations need more than {MAX_WORK} steps")]
    Work,
}

impl AdaptFault {
    /// As an error of the object, which only an exceeded budget is; others are errors of a program.
    pub(crate) fn of_object(self) -> Result<ReadFault, String> {
        match self {
            AdaptFault::Work => Ok(ReadFault::TooLarge { what: "adaptations", limit: MAX_WORK }),
            other => Err(other.to_string()),
        }
    }
}
