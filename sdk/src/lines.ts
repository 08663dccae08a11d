/** The lines of a body of text. `read` may bound the wait for each piece. The body is cancelled when nobody reads on. */
export async function* linesOf(
  body: ReadableStream<Uint8Array>,
  read: <Piece>(next: Promise<Piece>) => Promise<Piece> = (next) => next,
): AsyncGenerator<string> {
  const reader = body.getReader()
  const decoder = new TextDecoder()
  let rest = ''
  try {
    for (;;) {
      const piece = await read(reader.read())
      const lines = (rest + decoder.decode(piece.value, { stream: !piece.done })).split(/\r?\n/)
      rest = lines.pop() ?? ''
      yield* lines
      if (!piece.done) continue
      if (rest !== '') yield rest
      return
    }
  } finally {
    await reader.cancel().catch(() => undefined)
  }
}
