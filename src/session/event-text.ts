import type { StreamEvent } from './session.ts'

const texts = new WeakMap<StreamEvent, string>()

/** An event as it is stored. Its data are parsed once somebody looks into them, which whoever passes them on does not. */
export function storedEvent(sequence: number, text: string, createdAt: Date): StreamEvent {
  let parsed: StreamEvent['data'] | undefined
  const event: StreamEvent = {
    sequence,
    get data() {
      return (parsed ??= JSON.parse(text) as StreamEvent['data'])
    },
    createdAt,
  }
  texts.set(event, text)
  return event
}

/** The JSON text of the data, on one line. */
export function eventText(event: StreamEvent): string {
  return texts.get(event) ?? JSON.stringify(event.data)
}
