//! `casemirror sandbox`: the simulated API server alone.

use std::time::Duration;

use super::args;
use super::print;
use crate::error::Result;
use crate::sandbox::{Options, Sandbox};

/// Between two things that happen in the simulated brokerage by themselves.
const LIVE_EVERY: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &args::Sandbox) -> Result<u8> {
    let options = Options {
        listen: args.listen,
        cases: args.cases,
        seed: args.seed,
        live: Some(LIVE_EVERY),
        ..Options::default()
    };
    let mut sandbox = Sandbox::start(options).await?;
    print(&format!(
        "A simulated brokerage with {} cases answers at\n\n  \
         export CASEMIRROR_SOURCE__BASE_URL={}\n  export CASEMIRROR_SOURCE__CLIENT_ID={}\n  \
         export CASEMIRROR_SOURCE__CLIENT_SECRET={}\n\n\
         Something happens in it every {} seconds. Ctrl-C ends it.\n",
        args.cases,
        sandbox.base_url(),
        sandbox.client_id(),
        sandbox.client_secret(),
        LIVE_EVERY.as_secs()
    ))?;
    tokio::select! {
        () = sandbox.serve() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    sandbox.stop().await;
    Ok(0)
}
