//! What it was measured on.

/// Processor, cores, memory, kernel.
pub(crate) fn described() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory: f64 = field("/proc/meminfo", "MemTotal:")
        .trim_end_matches(" kB")
        .parse()
        .map_or(0.0, |kib: f64| kib * 1024.0 / 1e9);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processor = field("/proc/cpuinfo", "model name");
    format!(
        "{cores} cores ({}), {memory:.0} GB of memory, Linux {}, casemirror {}",
        processor.trim_start_matches([':', ' ']),
        kernel.trim(),
        env!("CARGO_PKG_VERSION"),
    )
}

/// What stands behind a name in a file of lines.
fn field(file: &str, name: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}
