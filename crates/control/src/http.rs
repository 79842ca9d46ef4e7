// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Metrics over HTTP.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use tiny_http::{Header, Method, Request, Response};

use crate::error::ControlError;
use crate::metrics::metrics;
use crate::server::Subject;

/// The media type of the text format.
const CONTENT_TYPE: &str = "Content-Type: text/plain; version=0.0.4; charset=utf-8";

/// An endpoint for Prometheus.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
}

impl MetricsServer {
    /// Serves the metrics of a run at `http://ADDRESS/metrics`. A thread of its own answers; it ends with the process.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn start(address: SocketAddr, subject: Arc<dyn Subject>) -> Result<MetricsServer, ControlError> {
        let failed = |reason: String| ControlError::Metrics { address: address.to_string(), reason };
        let server = tiny_http::Server::http(address).map_err(|error| failed(error.to_string()))?;
        let bound = server.server_addr().to_ip().unwrap_or(address);
        let answer = move || {
            for request in server.incoming_requests() {
                // A peer that has closed its connection gets no answer.
                let _ = respond(request, &*subject);
            }
        };
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(answer);
        thread.map_err(|error| failed(error.to_string()))?;
        Ok(MetricsServer { address: bound })
    }

    /// The address, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn respond(request: Request, subject: &dyn Subject) -> std::io::Result<()> {
    let path = request.url().split('?').next().unwrap_or_default().to_owned();
    if !matches!(request.method(), Method::Get | Method::Head) {
        return request.respond(Response::from_string("expected GET\n").with_status_code(405));
    }
    if path != "/metrics" {
        return request.respond(Response::from_string("metrics are at /metrics\n").with_status_code(404));
    }
    match subject.statistics() {
        Ok(report) => {
            let response = Response::from_string(metrics(&report));
            match Header::from_str(CONTENT_TYPE) {
                Ok(header) => request.respond(response.with_header(header)),
                Err(()) => request.respond(response),
            }
        }
        Err(refusal) => request.respond(Response::from_string(format!("{refusal}\n")).with_status_code(503)),
    }
}
