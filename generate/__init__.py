# SPDX-License-Identifier: Apache-2.0
"""Man pages and shell completion, generated from the commands themselves: `./dev generate`, or `python -m generate`.

`programs` lists the programs; `of_gsaas` and `of_argparse` read their commands into the values of `commands`; `man`,
`bash`, `zsh` and `fish` write these values as files, which are committed.
"""
