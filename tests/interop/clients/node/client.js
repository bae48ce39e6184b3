'use strict';

// ali-ons behind the common orders of the client matrix: a JSON object per line in, one per line out.

const crypto = require('crypto');
const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const QUEUES = 4;

// Asked for by the client even where the name server is given by its address.
const httpclient = { request: async () => { throw new Error('no address server here'); } };
const quiet = { info() {}, debug() {}, warn: (...words) => console.error(...words), error: (...words) => console.error(...words) };

const producers = new Map();
const consumers = new Map();

function settings(order) {
  return { httpclient, logger: quiet, nameSrv: order.nameServers.split(';'), instanceName: order.name };
}

// The client hashes a key to a queue and takes no number; a key that leads to queue 0 would be ignored by it.
function shardingKey(shard) {
  for (let i = 0; ; i++) {
    const key = `shard-${shard}-${i}`;
    if (crypto.createHash('md5').update(key).digest().readUInt32BE() % QUEUES === shard) {
      return key;
    }
  }
}

function build(order, mode) {
  const message = new Message(order.topic, order.tags, order.body);
  message.keys = [ order.keys ];
  Object.assign(message.properties, order.properties);
  if (order.delayLevel > 0) {
    message.delayTimeLevel = order.delayLevel;
  }
  if (mode === 'ordered') {
    message.shardingKey = shardingKey(order.shard);
  }
  return message;
}

async function send(producer, message) {
  const result = await producer.send(message);
  return {
    status: result.sendStatus,
    id: result.msgId,
    offsetId: result.msgId,
    queueId: Number(result.messageQueue.queueId),
    queueOffset: result.queueOffset,
  };
}

function describe(message, success) {
  return {
    id: message.msgId,
    offsetId: message.msgId,
    topic: message.topic,
    queueId: message.queueId,
    queueOffset: message.queueOffset,
    body: message.body.toString('utf8'),
    tags: message.tags,
    keys: message.keys,
    properties: message.properties,
    reconsumeTimes: message.reconsumeTimes,
    bornMs: message.bornTimestamp,
    storeMs: message.storeTimestamp,
    receivedMs: Date.now(),
    success,
  };
}

class Receiver {
  constructor(order) {
    this.deliveries = [];
    this.failures = new Map(Object.entries(order.failures));
    this.consumer = new Consumer({
      ...settings(order),
      consumerGroup: order.group,
      isBroadcast: order.broadcast,
      consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
      maxReconsumeTimes: order.maxReconsumes > 0 ? order.maxReconsumes : 16,
      rebalanceInterval: 1000,
      persistConsumerOffsetInterval: 1000,
    });
    this.consumer.on('error', failure => console.error(failure.message));
    const expression = order.sql ? { expressionType: 'SQL92', subString: order.expression } : order.expression;
    this.consumer.subscribe(order.topic, expression, async message => this.keep(message));
  }

  async keep(message) {
    const left = this.failures.has(message.keys) ? this.failures.get(message.keys) : 0;
    if (left > 0) {
      this.failures.set(message.keys, left - 1);
    }
    this.deliveries.push(describe(message, left === 0));
    if (left !== 0) {
      throw new Error(`${message.keys} is to fail`);
    }
  }
}

async function obey(order) {
  switch (order.do) {
    case 'producer': {
      const producer = new Producer({ ...settings(order), producerGroup: order.group, sendMsgTimeout: 10000 });
      producer.on('error', failure => console.error(failure.message));
      await producer.ready();
      producers.set(order.name, producer);
      return null;
    }
    case 'consumer': {
      const receiver = new Receiver(order);
      await receiver.consumer.ready();
      consumers.set(order.name, receiver);
      return null;
    }
    case 'send': {
      const producer = producers.get(order.producer);
      const messages = order.messages.map(each => build(each, order.mode));
      if (order.mode === 'async') {
        return Promise.all(messages.map(message => send(producer, message)));
      }
      const results = [];
      for (const message of messages) {
        results.push(await send(producer, message));
      }
      return results;
    }
    case 'received':
      return consumers.get(order.consumer).deliveries.slice(order.from);
    case 'close':
      if (producers.has(order.name)) {
        await producers.get(order.name).close();
        producers.delete(order.name);
      } else if (consumers.has(order.name)) {
        await consumers.get(order.name).consumer.close();
        consumers.delete(order.name);
      }
      return null;
    default:
      throw new Error(`unknown order ${order.do}`);
  }
}

function answer(fields) {
  process.stdout.write(`${JSON.stringify(fields)}\n`);
}

async function main() {
  answer({ event: 'ready' });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      const result = await obey(JSON.parse(line));
      answer({ event: 'done', result });
    } catch (failure) {
      answer({ event: 'failed', error: String(failure), code: failure.code });
    }
  }
  process.exit(0);
}

process.on('unhandledRejection', failure => console.error('unhandled:', failure));
main();
