//! `tar`: writes an archive of files to stdout, or makes the files of an archive from stdin.

mod create;
mod extract;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use lexopt::Arg;

use super::{Files, Streams, TROUBLE};

/// The file that stands for stdin and stdout.
const STREAM: &str = "-";

/// The arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    action: Option<Action>,
    /// Where the paths begin; otherwise in the working directory.
    dir: PathBuf,
    /// Extracted files are as old as they were.
    keeps_times: bool,
    /// Names are written.
    is_verbose: bool,
    paths: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Create,
    Extract,
}

/// Runs it to its end. Returns its exit code.
pub fn run(args: &[String], files: &Files, mut streams: Streams) -> i32 {
    let done = match Options::parse(args) {
        Ok(options) => match options.action {
            Some(Action::Create) => create::create(&options, files, &mut streams),
            Some(Action::Extract) => extract::extract(&options, files, &mut streams),
            None => Err(io::Error::other("either c or x is needed")),
        },
        Err(error) => Err(io::Error::other(format!("{error}; Skiff's own tar knows c, x, f -, C, m, p, o and v"))),
    };
    if let Err(error) = done {
        streams.messages.complain(STREAM, &error);
    }
    if streams.messages.have_trouble { TROUBLE } else { 0 }
}

impl Options {
    fn parse(args: &[String]) -> Result<Self, lexopt::Error> {
        let mut options = Self { keeps_times: true, ..Self::default() };
        let mut parser = lexopt::Parser::from_args(dashed(args));
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Short('c') | Arg::Long("create") => options.act(Action::Create)?,
                Arg::Short('x') | Arg::Long("extract" | "get") => options.act(Action::Extract)?,
                Arg::Short('f') | Arg::Long("file") => {
                    let file = parser.value()?;
                    if file != OsStr::new(STREAM) {
                        return Err(format!("the archive {} is a file", file.display()).into());
                    }
                }
                // Each counts from the one before, and for all paths.
                Arg::Short('C') | Arg::Long("directory") if options.paths.is_empty() => options.dir.push(parser.value()?),
                Arg::Short('C') | Arg::Long("directory") => return Err("C comes after a path".into()),
                Arg::Short('m') | Arg::Long("touch") => options.keeps_times = false,
                Arg::Short('v') | Arg::Long("verbose") => options.is_verbose = true,
                // Files always get the container's user, and the bits of their modes that its mask lets through.
                Arg::Short('p' | 'o') | Arg::Long("no-same-owner" | "no-same-permissions" | "same-permissions") => {}
                Arg::Value(path) => options.paths.push(path.into()),
                other => return Err(other.unexpected()),
            }
        }
        Ok(options)
    }

    fn act(&mut self, action: Action) -> Result<(), lexopt::Error> {
        match self.action.replace(action) {
            Some(before) if before != action => Err("c and x exclude each other".into()),
            _ => Ok(()),
        }
    }

    /// The path of a file that is named or in the archive.
    fn path(&self, path: &Path) -> PathBuf {
        // An empty one names nothing, and not the directory.
        if path.as_os_str().is_empty() { PathBuf::new() } else { self.dir.join(path) }
    }
}

/// The first argument may be options without their dash. Those are not options with values inside: `cf -` is `-c -f -`.
fn dashed(args: &[String]) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.iter().map(OsString::from).collect();
    if let Some(first) = args.first_mut()
        && !first.as_encoded_bytes().starts_with(b"-")
    {
        let mut options = OsString::from("-");
        options.push(&*first);
        *first = options;
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Options::parse(&args).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_lines_of_clients_are_understood() {
        let create = Options { action: Some(Action::Create), keeps_times: true, paths: vec!["/data/x".into()], ..Options::default() };
        for line in ["cf - /data/x", "-c -f - /data/x", "-cf- /data/x", "--create --file=- -- /data/x"] {
            assert_eq!(parsed(line).as_ref(), Ok(&create), "{line}");
        }
        let extract = Options { action: Some(Action::Extract), dir: "/data".into(), ..Options::default() };
        for line in ["-xmf - -C /data", "xmf - -C /data --no-same-owner", "--no-same-permissions --no-same-owner -xmf - -C /data"] {
            assert_eq!(parsed(line).as_ref(), Ok(&extract), "{line}");
        }
        let keeping = Options { keeps_times: true, is_verbose: true, ..extract };
        assert_eq!(parsed("-C / -C data -x -v -f -"), Ok(keeping));
    }

    #[test]
    fn what_it_cannot_do_is_named() {
        let cases = [
            ("czf -", "invalid option '-z'"),
            ("cf x.tar", "the archive x.tar is a file"),
            ("cxf -", "c and x exclude each other"),
            ("--strip-components=1", "invalid option '--strip-components'"),
            ("cf - a -C b c", "C comes after a path"),
            ("cf", "missing argument for option '-f'"),
        ];
        for (line, wanted) in cases {
            assert_eq!(parsed(line), Err(wanted.to_owned()), "{line}");
        }
    }
}
