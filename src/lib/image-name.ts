/** `NAME` or `NAME:TAG`, as an image of a server is called. */
export const imageNamePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$/

export const imageNameRule =
  'must be 1 to 128 letters, digits, `.`, `_` and `-`, the first a letter or digit, and after a `:` a tag of such if wanted'
