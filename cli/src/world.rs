//! `--world NAME[:PARAMS]`: the worlds that a binary has registered.

use std::{error::Error, str::FromStr, sync::Arc};

use trapline::World;

use super::values::{unknown, usage};

/// Makes a world of a binary from its parameters.
pub(super) type MakeWorld =
    Arc<dyn Fn(&str) -> Result<Box<dyn World>, Box<dyn Error>> + Send + Sync>;

/// A world of the command line, not made yet: its command line may be that of a tape.
#[derive(Clone)]
pub(super) struct NamedWorld {
    text: String,
    params: String,
    make: MakeWorld,
}

impl NamedWorld {
    /// Reads the name of a world and its parameters.
    pub(super) fn parse(text: &str, registered: &[(String, MakeWorld)]) -> Result<Self, String> {
        let (name, params) = text.split_once(':').unwrap_or((text, ""));
        let Some((_, make)) = registered.iter().find(|(other, _)| other == name) else {
            let names: Vec<&str> = registered.iter().map(|(name, _)| name.as_str()).collect();
            return Err(match &names[..] {
                [] => {
                    "this binary has no worlds of its own: trapline_cli::App::world adds one".into()
                }
                names => unknown("world", name, names),
            });
        };
        Ok(Self {
            text: text.into(),
            params: params.into(),
            make: Arc::clone(make),
        })
    }

    /// Makes the world. An error is a usage error.
    pub(super) fn make(&self) -> Result<Box<dyn World>, clap::Error> {
        let text = &self.text;
        let cannot = |error| usage(format!("cannot make the world of --world {text}: {error}"));
        (self.make)(&self.params).map_err(cannot)
    }
}

impl FromStr for NamedWorld {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, &[])
    }
}
