import type { Atoll, RequestOptions } from './atoll.ts'
import { UnexpectedAnswerError } from './errors.ts'

type Query = Record<string, string | number | readonly string[] | undefined>

/** All items of a list whose next page is named by `X-Next-Cursor`. */
export async function* pagesOf<Item>(
  client: Atoll,
  path: string,
  query: Query,
  options: RequestOptions,
): AsyncGenerator<Item> {
  let cursor: string | undefined
  do {
    const { items, headers } = await client.page<Item[]>(path, { query: { ...query, cursor }, ...options })
    if (!Array.isArray(items))
      throw new UnexpectedAnswerError(`GET ${path} was answered with something else than a list`)
    yield* items
    cursor = headers.get('x-next-cursor') ?? undefined
  } while (cursor !== undefined)
}
