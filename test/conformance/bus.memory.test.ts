import { createInProcessBus } from '../../src/events/in-process-bus.ts'
import { busConformance } from './bus.ts'

busConformance('memory', () => {
  const listenerErrors: unknown[] = []
  return Promise.resolve({
    bus: createInProcessBus({ onListenerError: (error) => listenerErrors.push(error) }),
    listenerErrors,
  })
})
