//! `[slurm]` of a file, and the scripts of the two jobs: an array that runs the parts of a campaign
//! that have something to run, and one that merges after it.

use std::fmt::Write as _;
use std::path::Path;

use super::text::{Entry, Item, Line, Problem, problem, unknown};

/// The keys of `[slurm]`.
const KEYS: [&str; 5] = ["array", "cpus_per_task", "options", "partition", "time"];

/// Options of sbatch that the scripts need for themselves.
const OWN_OPTIONS: [&str; 7] = ["-a", "--array", "-D", "--chdir", "-o", "--output", "--dependency"];

/// How jobs are submitted.
#[derive(Clone, Debug)]
pub(super) struct SlurmOptions {
    /// Into how many parts a campaign is divided.
    pub(super) array: u32,
    cpus_per_task: u32,
    partition: Option<String>,
    time: Option<String>,
    /// Further options of sbatch.
    options: Vec<String>,
}

impl Default for SlurmOptions {
    fn default() -> Self {
        let (partition, time, options) = (None, None, Vec::new());
        SlurmOptions { array: 16, cpus_per_task: 1, partition, time, options }
    }
}

impl SlurmOptions {
    /// Reads the table.
    pub(super) fn read(entries: Vec<Entry>) -> Result<Self, Problem> {
        let mut slurm = SlurmOptions::default();
        for entry in entries {
            let (key, line) = (entry.key.clone(), entry.line);
            match key.as_str() {
                "array" => slurm.array = one(entry)?.whole("array", 1, 100_000)? as u32,
                "cpus_per_task" => {
                    slurm.cpus_per_task = one(entry)?.whole("cpus_per_task", 1, 65_534)? as u32;
                }
                "partition" => slurm.partition = Some(word(entry, is_name, "a partition's name")?),
                "time" => {
                    let expected = "a time as of sbatch, such as \"30\", \"2:00:00\", \"1-12\"";
                    slurm.time = Some(word(entry, is_time, expected)?);
                }
                "options" => {
                    let options = entry.items()?;
                    slurm.options = options.iter().map(option).collect::<Result<_, _>>()?;
                }
                _ => return Err(problem(line, unknown("key", &key, &KEYS))),
            }
        }
        Ok(slurm)
    }
}

/// The only value of a key.
fn one(entry: Entry) -> Result<Item, Problem> {
    let (key, line) = (entry.key.clone(), entry.line);
    match <[Item; 1]>::try_from(entry.items()?) {
        Ok([item]) => Ok(item),
        Err(_) => Err(problem(line, format!("{key} is a list, expected one value"))),
    }
}

fn word(entry: Entry, fits: fn(&str) -> bool, expected: &str) -> Result<String, Problem> {
    let key = entry.key.clone();
    let item = one(entry)?;
    let text = item.text(&key)?;
    let wrong = || problem(item.line, format!("{key} is `{text}`, expected {expected}"));
    fits(text).then(|| text.to_owned()).ok_or_else(wrong)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_whitespace) && !text.starts_with('-')
}

fn is_time(text: &str) -> bool {
    let known = |letter: char| letter.is_ascii_digit() || letter == ':' || letter == '-';
    text.starts_with(|letter: char| letter.is_ascii_digit()) && text.chars().all(known)
}

fn option(item: &Item) -> Result<String, Problem> {
    let text = item.text("options")?;
    let wrong = |line: Line, why: &str| problem(line, format!("options: `{text}` {why}"));
    let own = |own: &&&str| {
        let rest = text.strip_prefix(**own);
        // A short option has its value without `=`.
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('=') || own.len() == 2)
    };
    if !text.starts_with('-') || text.contains('\n') {
        return Err(wrong(item.line, "is no option of sbatch, such as \"--mem=2G\""));
    }
    match OWN_OPTIONS.iter().find(own) {
        Some(_) => Err(wrong(item.line, "is set by freehold itself")),
        None => Ok(text.to_owned()),
    }
}

/// What the scripts run, and where.
pub(super) struct Plan<'a> {
    pub(super) options: &'a SlurmOptions,
    /// This program.
    pub(super) freehold: &'a Path,
    pub(super) file: &'a Path,
    /// The folder of the results.
    pub(super) output: &'a Path,
    /// The folder of scripts and logs.
    pub(super) logs: &'a Path,
    /// Whether cells measure the machine that they run on, which must then do nothing else.
    pub(super) exclusive: bool,
}

impl Plan<'_> {
    /// The script of the array, whose tasks run these parts.
    pub(super) fn array_script(&self, parts: &[u32]) -> String {
        let mut script = self.head("%A_%a.log");
        directive(&mut script, &format!("--array={}", ranges(parts)));
        directive(&mut script, &format!("--cpus-per-task={}", self.options.cpus_per_task));
        if self.exclusive {
            directive(&mut script, "--exclusive");
        }
        let array = self.options.array;
        let command = self.command();
        let _ = write!(
            script,
            "{command} \\\n    --shard \"$SLURM_ARRAY_TASK_ID/{array}\" \
             --jobs \"${{SLURM_CPUS_PER_TASK:-1}}\"\n"
        );
        script
    }

    /// The script of the job that merges.
    pub(super) fn merge_script(&self) -> String {
        format!("{}{} --merge\n", self.head("merge_%j.log"), self.command())
    }

    fn head(&self, log: &str) -> String {
        let mut script = "#!/bin/bash\n".to_owned();
        directive(&mut script, "--job-name=freehold-sweep");
        directive(&mut script, &format!("--chdir={}", self.logs.display()));
        directive(&mut script, &format!("--output={log}"));
        let options = [("partition", &self.options.partition), ("time", &self.options.time)];
        for (name, value) in options {
            if let Some(value) = value {
                directive(&mut script, &format!("--{name}={value}"));
            }
        }
        for option in &self.options.options {
            directive(&mut script, option);
        }
        script
    }

    /// The command without what sets the two jobs apart. Signals go to it, not to a shell.
    fn command(&self) -> String {
        let [freehold, file, output] = [self.freehold, self.file, self.output].map(quoted);
        format!("exec {freehold} sweep {file} \\\n    --output {output}")
    }
}

/// Adds an option for sbatch, quoted as it understands: in double quotes, with a backslash before
/// those and before backslashes.
fn directive(script: &mut String, option: &str) {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=.,:/%@+[]".contains(letter);
    let text = match option.chars().all(plain) {
        true => option.to_owned(),
        false => format!("\"{}\"", option.replace('\\', "\\\\").replace('"', "\\\"")),
    };
    let _ = writeln!(script, "#SBATCH {text}");
}

/// A path as one word of a shell, which changes nothing between single quotes.
pub(super) fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// Numbers in ascending order, as sbatch has them: `0-3,5`.
fn ranges(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let one = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::text::parse;

    fn read(text: &str) -> Result<SlurmOptions, String> {
        let read = SlurmOptions::read(parse(text).unwrap());
        read.map_err(|Problem { line, what }| format!("{line}: {what}"))
    }

    #[test]
    fn options_are_checked() {
        for (text, expected) in [
            ("\narray = 0\n", "2: array is 0, expected a whole number from 1 to 100000"),
            ("array = [1, 2]\n", "1: array is a list, expected one value"),
            ("partition = 'a b'\n", "1: partition is `a b`, expected a partition's name"),
            ("options = ['--mem=1G',\n'mem']\n", "2: options: `mem` is no option of sbatch, "),
            ("options = '--array=1-2'\n", "1: options: `--array=1-2` is set by freehold itself"),
            ("options = '-Dx'\n", "1: options: `-Dx` is set by freehold itself"),
            ("time = 'long'\n", "1: time is `long`, expected a time as of sbatch, "),
            ("tim = '1'\n", "1: unknown key `tim`, did you mean `time`?"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn scripts_have_the_options_and_quote_what_needs_it() {
        let text = "array = 8\ncpus_per_task = 4\npartition = 'big'\ntime = '1-12:00'\n\
                    options = ['--comment=two \"words\"', '--mem=2G']\n";
        let options = read(text).unwrap();
        let path = Path::new;
        let plan = Plan {
            options: &options,
            freehold: path("/opt/free hold/freehold"),
            file: path("/data/it's.toml"),
            output: path("/data/a $b"),
            logs: path("/data/a \"b\""),
            exclusive: true,
        };
        let expected = r#"#!/bin/bash
#SBATCH --job-name=freehold-sweep
#SBATCH "--chdir=/data/a \"b\""
#SBATCH --output=%A_%a.log
#SBATCH --partition=big
#SBATCH --time=1-12:00
#SBATCH "--comment=two \"words\""
#SBATCH --mem=2G
#SBATCH --array=0-2,5,7
#SBATCH --cpus-per-task=4
#SBATCH --exclusive
exec '/opt/free hold/freehold' sweep '/data/it'\''s.toml' \
    --output '/data/a $b' \
    --shard "$SLURM_ARRAY_TASK_ID/8" --jobs "${SLURM_CPUS_PER_TASK:-1}"
"#;
        assert_eq!(plan.array_script(&[0, 1, 2, 5, 7]), expected);
        let merge = plan.merge_script();
        assert!(merge.contains("--output=merge_%j.log\n") && merge.ends_with("' --merge\n"));
        assert!(!merge.contains("--array") && !merge.contains("--exclusive"), "{merge}");
    }
}
