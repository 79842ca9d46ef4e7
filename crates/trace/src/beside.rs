//! What a capture holds, beside what a paper prints about the trace it stands for.

use serde::Serialize;

use crate::flows::ACTIVE_WINDOW_NS;
use crate::info::TraceInfo;
use crate::traffic::PaperRow;

/// How far the mean length and the active flows may be from the paper's.
const NEAR: f64 = 0.05;
/// How far the most new flows in a millisecond may be.
const NEAR_NEW: f64 = 0.15;
/// How much shorter than the window of active flows a capture may be, for it ends with its last packet.
const SHORT: f64 = 0.02;

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Flows.
    Flows,
    /// A share of the packets, from 0 to 1.
    Share,
}

/// One figure, measured and printed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Beside {
    /// What it is.
    pub figure: String,
    /// What it counts.
    pub unit: Unit,
    /// What the paper prints.
    pub paper: f64,
    /// What the capture has.
    pub measured: f64,
    /// Where it is off: as a part of the paper's figure; of a share, the difference of both.
    pub deviation: f64,
    /// How far it may be off; `None` where nothing is asked.
    pub limit: Option<f64>,
}

impl Beside {
    fn new(figure: String, unit: Unit, paper: f64, measured: f64, limit: Option<f64>) -> Beside {
        let difference = measured - paper;
        let deviation = if unit == Unit::Share { difference } else { difference / paper };
        Beside { figure, unit, paper, measured, deviation, limit }
    }

    /// Whether it is as near to the paper's figure as is asked.
    pub fn is_near(&self) -> bool {
        self.limit.is_none_or(|limit| self.deviation.abs() <= limit)
    }
}

impl TraceInfo {
    /// Every figure that the row has, beside this capture's.
    pub fn beside(&self, row: &PaperRow) -> Vec<Beside> {
        let mut figures = vec![Beside::new(
            "mean length".to_owned(),
            Unit::Bytes,
            row.mean_len_bytes,
            self.mean_len_bytes,
            Some(NEAR),
        )];
        let mut flows = |what: &str, paper: [Option<u64>; 3], measured: Vec<u64>, limit: f64| {
            for ((flows, paper), measured) in self.flows.iter().zip(paper).zip(measured) {
                let figure = format!("{what}, {}", flows.key);
                figures.extend(
                    paper.map(|paper| Beside::new(figure, Unit::Flows, paper as f64, measured as f64, Some(limit))),
                );
            }
        };
        let measured = self.flows.iter().map(|flows| flows.max_active_in_10s).collect();
        flows("active in 10 s", row.active_in_10s, measured, NEAR);
        let measured = self.flows.iter().map(|flows| flows.max_new_per_ms).collect();
        flows("new in 1 ms", row.new_per_ms, measured, NEAR_NEW);
        figures.extend(row.sizes.iter().map(|size| {
            let figure = match (size.from_bytes, size.below_bytes) {
                (0, Some(below)) => format!("below {below} B"),
                (from, Some(below)) => format!("{from} to {} B", below - 1),
                (from, None) => format!("{from} B and more"),
            };
            let measured = self.share(size.from_bytes, size.below_bytes);
            Beside::new(figure, Unit::Share, size.share, measured, None)
        }));
        figures
    }

    /// Whether the capture is long enough for a window of active flows.
    pub fn covers_window(&self) -> bool {
        self.duration_ns as f64 >= (1.0 - SHORT) * ACTIVE_WINDOW_NS as f64
    }
}
