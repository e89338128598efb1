//! The part of a search that a cluster gives this process, by its environment.

use std::env;

/// Returns the number of this process's part and the number of parts. `of` is the number of parts
/// that was told; a Slurm array tells it, too.
pub(super) fn shard(of: Option<u64>) -> Result<Option<(u64, u64)>, String> {
    let number = |name: &str| match env::var(name) {
        Err(_) => Ok(None),
        Ok(text) => match text.parse::<u64>() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(format!("{name}={text}: it takes a whole number")),
        },
    };
    // A job of an array has its own tasks and steps; the array's number is what counts.
    let slurm = number("SLURM_ARRAY_TASK_ID")?;
    let (index, count) = if let Some(task) = slurm {
        let first = number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0);
        let step = number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
        let index = task.saturating_sub(first) / step;
        (Some(index), number("SLURM_ARRAY_TASK_COUNT")?)
    } else if let Some(index) = number("JOB_COMPLETION_INDEX")? {
        (Some(index), None)
    } else {
        let sequence = number("PARALLEL_SEQ")?;
        (sequence.map(|sequence| sequence.saturating_sub(1)), None)
    };
    match (index, of.or(count)) {
        (_, None) => Ok(None),
        (Some(index), Some(of)) if index < of => Ok(Some((index + 1, of))),
        (Some(index), Some(of)) => Err(format!(
            "this process has number {} in its cluster, but there are {of} parts",
            index + 1
        )),
        (None, Some(_)) => Err(
            "--shards takes the number of the part from SLURM_ARRAY_TASK_ID, \
             JOB_COMPLETION_INDEX or PARALLEL_SEQ, and none is set; or give --shard I/N"
                .into(),
        ),
    }
}
