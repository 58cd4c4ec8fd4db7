# SPDX-License-Identifier: Apache-2.0
"""Files that follow from the code: `./dev generate`, or `python -m generate FOLDER`, writes all of them.

`programs` lists the programs; `of_gsaas` and `of_argparse` read their commands into the values of `commands`; `man`,
`bash`, `zsh` and `fish` render these values as files. `schemas` has the JSON Schemas of notifications. `./dev package`
puts all of them into the distributions, and `./dev docs` the schemas into the site.
"""
