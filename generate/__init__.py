# SPDX-License-Identifier: Apache-2.0
"""Man pages and shell completion, generated from the commands: `./dev generate`, or `python -m generate FOLDER`.

`programs` lists the programs; `of_gsaas` and `of_argparse` read their commands into the values of `commands`; `man`,
`bash`, `zsh` and `fish` render these values as files. `./dev package` puts them into the distributions.
"""
