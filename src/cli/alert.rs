//! `casemirror alert test`: whether what needs a person would reach one.

use super::args::Alert;
use super::print;
use crate::alert;
use crate::config::Config;
use crate::error::Result;

pub(crate) async fn run(args: &Alert, config: &Config) -> Result<u8> {
    match args {
        Alert::Test => test(config).await,
    }
}

async fn test(config: &Config) -> Result<u8> {
    alert::test(&config.alert).await?;
    print("alert.url took a message that says that it is a test\n")?;
    if config.alert.heartbeat.is_some() {
        print("alert.heartbeat was not called: a call says that everything is fresh\n")?;
    }
    Ok(0)
}
