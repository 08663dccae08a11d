/** A frame for hostd with one line of JSON. */
export function encode(value: object): Buffer {
  const text = Buffer.from(JSON.stringify(value))
  const head = Buffer.alloc(4)
  head.writeUInt32BE(text.length)
  return Buffer.concat([head, text])
}
