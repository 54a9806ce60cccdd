//! The BPF backend of a build without it.

use std::convert::Infallible;

use crate::{Backend, Event, Outcome, Result, Settings, TraceDescription, TraceError};

/// See the module above.
#[derive(Debug)]
pub struct BpfBackend(Infallible);

impl BpfBackend {
    /// This was built without it.
    ///
    /// # Errors
    /// Always [`TraceError::Unavailable`].
    pub fn new(_settings: Settings) -> Result<BpfBackend> {
        let why = "this holdfast was built without the BPF backend: install clang and build again, or use --backend ptrace";
        Err(TraceError::Unavailable { backend: "bpf", why: why.to_owned() })
    }

    /// Refuses, as this build has no backend.
    ///
    /// # Errors
    /// Always [`TraceError::Unavailable`].
    pub fn with_buffer(settings: Settings, _buffer_bytes: u32) -> Result<BpfBackend> {
        BpfBackend::new(settings)
    }
}

impl Backend for BpfBackend {
    fn about(&self) -> TraceDescription {
        match self.0 {}
    }

    fn run(self: Box<Self>, _sink: &mut dyn FnMut(Event)) -> Result<Outcome> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;

    /// Guarantee: trace/no-privilege
    #[test]
    fn a_build_without_the_backend_says_so_and_what_to_do() {
        let settings = Settings::new(Target::Attach(vec![1]));
        for made in [BpfBackend::new(settings.clone()), BpfBackend::with_buffer(settings, 4096)] {
            let said = made.err().unwrap().to_string();
            assert!(said.contains("install clang") && said.contains("--backend ptrace"), "{said}");
        }
    }
}
