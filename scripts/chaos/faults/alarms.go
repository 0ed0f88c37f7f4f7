package faults

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// DisarmAlarms disarms etcd's alarms until none is listed: a write that exceeds the quota may raise its alarm again when etcd replays it.
func (c *Cluster) DisarmAlarms(ctx context.Context) error {
	return c.Do(ctx, "disarm alarms", func(ctx context.Context, client *clientv3.Client) error {
		for {
			resp, err := client.AlarmList(ctx)
			if err != nil || len(resp.Alarms) == 0 {
				return err
			}
			for _, a := range resp.Alarms {
				if a.Alarm == etcdserverpb.AlarmType_CORRUPT {
					return errors.New("etcd says that its data are corrupt")
				}
				if _, err := client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
					return err
				}
			}
		}
	})
}
