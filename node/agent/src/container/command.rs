//! The argument vector of a container. Pure.

use std::cell::Cell;
use std::collections::BTreeMap;

use node_images::ImageConfig;

use super::env::{self, LEN_MAX};

/// Upstream's rule, the same for Linux and WASM: `command` replaces entrypoint and cmd, `args` alone
/// replaces cmd. `argv[0]` of a WASM module is the image's entrypoint, which the image store sets to
/// the module's file name where the image names none.
pub(crate) fn arguments(command: &[String], args: &[String], image: &ImageConfig, env: &BTreeMap<String, String>) -> Vec<String> {
    // Many words that each refer to a long value could fill the memory, so nothing is replaced beyond the longest environment.
    let replaced = Cell::new(0_usize);
    let lookup = |name: &str| {
        let value = env.get(name).filter(|_| replaced.get() <= LEN_MAX)?;
        replaced.set(replaced.get() + value.len());
        Some(value.clone())
    };
    let expand = |words: &[String]| words.iter().map(|word| env::expand(word, &lookup)).collect::<Vec<_>>();
    match (command.is_empty(), args.is_empty()) {
        (false, _) => [expand(command), expand(args)].concat(),
        (true, false) => [image.entrypoint.clone(), expand(args)].concat(),
        (true, true) => [image.entrypoint.clone(), image.cmd.clone()].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_and_args_follow_upstreams_table() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let env = BTreeMap::from([("WHO".to_owned(), "me".to_owned())]);
        let image = ImageConfig { entrypoint: words("/ep $(WHO)"), cmd: words("foo bar"), ..ImageConfig::default() };
        let bare = ImageConfig { cmd: words("sh"), ..ImageConfig::default() };
        for (command, args, image, wanted) in [
            ("", "", &image, "/ep $(WHO) foo bar"),
            ("/cmd", "", &image, "/cmd"),
            ("", "$(WHO) $$(WHO) $(NONE)", &image, "/ep $(WHO) me $(WHO) $(NONE)"),
            ("/cmd $(WHO)", "x", &image, "/cmd me x"),
            ("", "", &bare, "sh"),
            ("", "x", &bare, "x"),
        ] {
            assert_eq!(arguments(&words(command), &words(args), image, &env), words(wanted), "{command} {args}");
        }
    }

    #[test]
    fn few_words_do_not_become_very_many_bytes() {
        let env = BTreeMap::from([("A".to_owned(), "a".repeat(1 << 20))]);
        let words = vec!["$(A)$(A)$(A)$(A)".to_owned(); 100];
        let all = arguments(&words, &words, &ImageConfig::default(), &env);
        assert!(all.iter().map(String::len).sum::<usize>() < LEN_MAX + (2 << 20));
        assert_eq!((all.len(), all[199].as_str()), (200, "$(A)$(A)$(A)$(A)"));
    }
}
