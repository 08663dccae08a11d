import type { Atoll, RequestOptions } from './atoll.ts'

type Query = Record<string, string | number | undefined>

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
    yield* items
    cursor = headers.get('x-next-cursor') ?? undefined
  } while (cursor !== undefined)
}
