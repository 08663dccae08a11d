// eslint-disable-next-line no-control-regex
const escapes = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\^_])/g
// eslint-disable-next-line no-control-regex
const controls = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g
/** Characters that change the order in which others are read: a command could look like another one. */
const reorders = /[\u202a-\u202e\u2066-\u2069]/g

/** Output of programs as text: without the colours of terminals and other controls, and what changes the order of reading is seen. */
export function plainText(text: string): string {
  return text
    .replaceAll('\r\n', '\n')
    .replaceAll(escapes, '')
    .replaceAll(controls, '')
    .replaceAll(reorders, (character) => `‹U+${character.codePointAt(0)?.toString(16).toUpperCase()}›`)
}
