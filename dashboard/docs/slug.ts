/** Makes the ids of the headings of one page as GitHub does, so a link has the same anchor there and here. */
export class Slugs {
  readonly #times = new Map<string, number>()

  /** The id of the next heading with this text. A repeated text gets `-1`, `-2` and so on. */
  next(text: string): string {
    const slug = text
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-')
    const before = this.#times.get(slug) ?? 0
    this.#times.set(slug, before + 1)
    return before === 0 ? slug : `${slug}-${before}`
  }
}
